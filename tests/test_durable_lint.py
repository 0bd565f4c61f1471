"""Every durable write stands in a step, so that the crash sweep knows of every place where a process may die."""

from __future__ import annotations

from pathlib import Path

import pytest

from durable_lint import lint, lint_tree

SRC = Path(__file__).parents[1] / "src" / "pz"

BAD = {
    "os.replace": "import os\nos.replace(a, b)",
    "Path.replace": "aside.replace(final)",
    "Path.rename": "aside.rename(final)",
    "open w": "open(path, 'w')",
    "open ab": "with open(path, mode='ab') as out:\n    pass",
    "open r+b": "open(path, 'r+b')",
    "Path.open": "path.open('xb')",
    "write_text": "path.write_text('x')",
    "write_bytes": "path.write_bytes(b'x')",
    "shutil.move": "shutil.move(a, b)",
    "shutil.rmtree": "shutil.rmtree(a)",
    "unlink": "path.unlink(missing_ok=True)",
    "commit": "connection.commit()",
    "in a transaction without a step": "with transaction(cursor) as t:\n    cursor.execute('DROP TABLE t')",
    "ddl": "cursor.execute('CREATE TABLE t (a INT)')",
    "ddl in f-string": "cursor.execute(f'DROP TABLE {name}')",
    "ddl behind a name": "SQL = 'ALTER TABLE t ADD COLUMN b INT'\ncursor.execute(SQL)",
    "copy": "cursor.execute(\"COPY t TO 'x.parquet'\")",
    "commit as text": "cursor.execute('COMMIT')",
    "second statement": "cursor.execute('INSERT INTO t VALUES (1); COMMIT')",
    "formatted": "cursor.execute('CREATE TABLE {} (a INT)'.format(name))",
    "in a function behind a step": "def f():\n    with step(Step.X):\n        pass\n    os.replace(a, b)",
    "in a callback made in a step": (
        "def f():\n    with step(Step.X):\n        def later():\n            os.replace(a, b)\n        return later"
    ),
    "an exemption without a reason": "os.replace(a, b)  # durable: ok",
}

GOOD = {
    "in a step": "with step(Step.X):\n    os.replace(a, b)",
    "in a step with others": "with step(Step.X), open(path, 'wb') as out:\n    out.write(b'')",
    "in a qualified step": "with durable.step(durable.Step.X):\n    connection.commit()",
    "in a transaction that is a step": "with session.transaction(cursor, Step.X) as tx:\n    cursor.execute('DROP TABLE t')",
    "on a transaction that a caller opened": "def f(tx):\n    tx.execute('DROP TABLE t')",
    "a helper": "write_atomic(path, data, Step.X)",
    "reading": "open(path).read(); open(path, 'rb'); path.open('r')",
    "text and records": "text.replace('a', 'b'); dataclasses.replace(x, a=1); replace(x, a=1)",
    "a temporary table": "cursor.execute('CREATE OR REPLACE TEMP TABLE t AS SELECT 1')",
    "a query": "cursor.execute('SELECT * FROM created')",
    "a function for a caller's step": "def f():  # durable: ok - in the caller's step\n    os.replace(a, b)",
    "an exemption": "os.replace(a, b)  # durable: ok - a cache that may be lost",
}


@pytest.mark.parametrize("snippet", BAD.values(), ids=BAD.keys())
def test_a_durable_call_outside_of_a_step_is_found(snippet: str) -> None:
    assert [finding for finding in lint(snippet) if not finding.exempt]


@pytest.mark.parametrize("snippet", GOOD.values(), ids=GOOD.keys())
def test_a_call_in_a_step_or_with_a_reason_passes(snippet: str) -> None:
    assert [finding for finding in lint(snippet) if not finding.exempt] == []


def test_every_durable_call_of_the_product_stands_in_a_step() -> None:
    findings = lint_tree(SRC)
    for finding in findings:
        if finding.exempt:
            print("exempt:", finding)
    outside = [str(finding) for finding in findings if not finding.exempt]
    assert not outside, (
        "wrap these in `with step(Step.X):` (or use a helper of pz.durable), or state on the line why it may be lost "
        "(`# durable: ok - reason`):\n" + "\n".join(outside)
    )
