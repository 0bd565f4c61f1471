"""Whatever a project's files and data hold, `pz validate` and `pz run` end with success or with coded problems.

`test_project_fuzz` throws far more at the loader and the templates alone; here every mutant goes through the whole
command line, data included: no stack trace, no exit code 3, and nothing that says less than a code.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from cli_support import Answer, invoke
from projects import write

PROJECT = {
    "project.yml": """\
name: shop
version: "1"
on_source_drift: warn
vars: { least: 1, since: "2024-01-01" }
engine: { threads: 1, duckdb: { memory_limit: 256MiB } }
""",
    "connections.yml": """\
files:
  connector: localfiles
  root: data
  entities:
    orders:
      read:
        path: orders.csv
        columns: { id: bigint, amount: "decimal(8,2)", note: varchar, paid: boolean, at: timestamp, f: double }
        sync: { mode: incremental, cursor: at, initial: "2024-01-01", max_window: 400d }
    events: { read: { path: "events*.ndjson", format: json } }
lake: { connector: localfiles, root: out }
base: { connector: duckdb, path: base.duckdb }
""",
    "pipelines/orders.sql": """\
-- every order with its events
INSERT INTO [{{ sink('lake', 'orders', format: 'csv', strategy: 'append', duplicates: 'accept') }},
             {{ sink('base', 'main.orders', strategy: 'merge', keys: ['id']) }}]
SELECT o.id, o.amount, o.note, count(e.kind) AS events, max(o.at) AS at
FROM {{ source('files', 'orders') }} o LEFT JOIN {{ ref('kinds') }} e ON e.id = o.id
WHERE o.id >= {{ var('least') }} {% if var('since') %}AND o.at >= '{{ var("since") }}'{% endif %}
GROUP BY ALL
""",
    "pipelines/total.sql": """\
INSERT INTO {{ sink('lake', 'total', format: 'json', layout: 'array', strategy: 'replace') }}
SELECT count(DISTINCT kind) AS total FROM {{ ref('kinds') }}
""",
    "pipelines/kinds.sql": "SELECT * FROM {{ source('files', 'events') }}\n",
    "pipelines/configs/orders.yml": """\
pipeline: orders
tags: [daily]
checks:
  - not_null: [id]
  - unique: [id]
  - row_count: { min: 1, max: 10 }
  - custom_sql: { name: positive, sql: "SELECT * FROM staging.orders WHERE amount < 0" }
""",
    "data/orders.csv": """\
id,amount,note,paid,at,f
1,10.00,first,true,2024-01-02 10:00:00,0.5
2,12.50,"a ""b"", c",false,2024-01-03 10:00:00,nan
3,,"",,2024-02-01T00:00:00,1e10
""",
    "data/events1.ndjson": '{"id": 1, "kind": "a", "n": 1.5}\n{"id": 1, "kind": "b", "more": {"x": [1, 2]}}\n',
    "data/events2.ndjson": '{"id": 2, "kind": null, "at": "2024-01-02T10:00:00Z"}\n',
}
PIECES = [
    b"{", b"}", b"{{", b"}}", b"{%", b"%}", b"[", b"]", b"(", b")", b":", b": ", b",", b"'", b'"', b'""', b"\n",
    b"\r\n", b"\r", b"\t", b" ", b"  ", b"-", b"- ", b"&a ", b"*a", b"<<: ", b"!!x ", b"|", b">", b"#", b"\x00",
    b"\xef\xbb\xbf", b"\xff", b"\xed\xa0\x80", "ü€".encode(), b"0", b"-1", b"1.5", b"1e999", b"1e-3", b"9" * 40,
    b"null", b"NaN", b"~", b"true", b"${A}", b"$${", b"${", b"--", b"/*", b"*/", b";", b"=", b"\\", b"?", b"a" * 300,
    b"2024-13-45", b"infinity", b"0001-01-01", b"294247-01-10", b"id", b"ID", b"merge", b"append", b"incremental",
    b"cdc", b"view", b"ephemeral", b"parquet", b"tsv", b"gzip", b"../", b"/", b"*", b"**", b"SELECT ", b"FROM ",
    b" UNION ALL ", b"error('x')", b"1/0", b"run_id", b"watermark('files', 'orders')", b"[1, 2]", b"''",
]  # fmt: skip


def mutant(dice: random.Random) -> dict[str, bytes]:
    """The project with one to three files changed in one to three places."""
    files = {name: text.encode() for name, text in PROJECT.items()}
    for name in dice.choices(sorted(files), k=dice.choice((1, 1, 1, 2, 3))):
        for _ in range(dice.randint(1, 3)):
            files[name] = _changed(dice, files[name])
    return files


def _changed(dice: random.Random, text: bytes) -> bytes:
    words = [found.span() for found in re.finditer(rb"[\w.]+|\S", text)] or [(0, 0)]
    start, end = dice.choice(words)
    kind = dice.randrange(6)
    if kind == 0:  # another word in its place
        return text[:start] + dice.choice(PIECES) + text[end:]
    if kind == 1:
        return text[:start] + dice.choice(PIECES) + text[start:]
    if kind == 2:  # cut off
        return text[:start]
    if kind == 3:
        return text[:start] + text[dice.choice(words)[0] :]
    if kind == 4:
        other = dice.choice(words)
        return text[:start] + text[other[0] : other[1]] + text[end:]
    lines = text.splitlines(keepends=True) or [b""]
    here = dice.randrange(len(lines))
    return b"".join([*lines[:here], *dice.choice((lines[here : here + 1] * 2, [])), *lines[here + 1 :]])


def judged(answer: Answer, words: Sequence[str]) -> None:
    """An invocation may succeed, or fail in words that a person can act on."""
    said = answer.out + answer.err
    assert answer.code in {0, 1, 2}, f"pz {' '.join(words)} ended with {answer.code}:\n{said}"
    assert "Traceback" not in said
    assert "PZ0000" not in said
    if answer.code:
        assert re.search(r"PZ\d{4}", said), f"pz {' '.join(words)} failed without a code:\n{said}"


@pytest.mark.parametrize("seed", range(120))
def test_a_mutated_project_never_ends_in_a_stack_trace(seed: int) -> None:
    survives(seed)


def test_the_project_itself_runs() -> None:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), PROJECT)
        answer = invoke("--project", folder, "run", "--all", "--log-format", "json")
        assert answer.code == 0, answer.out + answer.err
        assert len(Path(folder, "out/total/total.json").read_text().split()) > 1


def survives(seed: int) -> None:
    """Validate and run one mutant twice, so that state of the first run meets the second."""
    files = mutant(random.Random(seed))
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), files)
        for words in (["validate"], ["run", "--all"], ["run", "--all", "--log-format", "json"], ["retry"]):
            answer = invoke("--project", folder, *words)
            judged(answer, words)
            if "json" in words:
                for line in answer.out.splitlines():
                    json.loads(line)
