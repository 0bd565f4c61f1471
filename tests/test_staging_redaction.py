"""Messages of the engine are published without values."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pz.staging.redaction import redact, redact_statement

SECRET = "hunter2"


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT '{SECRET}' + FROM t",
        f"SELECT '{SECRET}'::INTEGER",
        f"SELECT * FROM read_csv('/data/{SECRET}.csv')",
        f"SELECT missing, '{SECRET}'\nFROM (SELECT 1 AS a)",
        f"SELECT $x${SECRET}$x$::DATE",
        f"ATTACH 'postgres://me:{SECRET}@db.example/x' AS pg (TYPE nothing)",
        f"SELECT error('user=me password={SECRET} https://h/?sig={SECRET}')",
        f"SELECT format('{{{SECRET}}}', 1)",
        f"SELECT strftime(TIMESTAMP '2024-01-01', '%{SECRET}%Q')",
        f"SELECT strptime('x', '%{SECRET}%Q')",
        f"SELECT '{SECRET}\\xZZ'::BLOB",
        f"CREATE SECRET s (TYPE s3, KEY_ID 'a', SECRET '{SECRET}', NONSENSE 'x')",
    ],
)
def test_an_error_of_duckdb_shows_none_of_the_literals(sql: str) -> None:
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    with pytest.raises(duckdb.Error) as failed:
        connection.execute(sql)
    connection.close()
    shown = redact(failed.value)
    assert SECRET not in shown
    assert "LINE" not in shown
    assert shown
    assert SECRET not in redact_statement(sql)


def test_names_of_columns_stay_readable() -> None:
    assert redact('Binder Error: Referenced column "net amount" not found!') == (
        'Binder Error: Referenced column "net amount" not found!'
    )


def test_a_row_that_a_csv_error_quotes_is_dropped() -> None:
    assert SECRET not in redact(f"CSV Error on Line: 3\nOriginal Line: 1,{SECRET},x\nExpected Number of Columns: 2")


@given(st.text())
def test_redaction_never_raises(text: str) -> None:
    redact(text)
    redact_statement(text)


def test_an_object_that_cannot_be_printed_is_masked() -> None:
    class Hostile(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert redact(Hostile()) == "***"
