"""The column contract takes any DuckDB type and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from projects import loaded, refused
from pz.project.columns import refused_types, with_default_scale


@pytest.mark.parametrize(
    "kind",
    [
        "int",
        "BIGINT",
        "double",
        "decimal",
        "decimal(12,2)",
        "DECIMAL( 38 , 38 )",
        "numeric(5)",
        "varchar",
        "varchar(20)",
        "timestamp",
        "timestamptz",
        "timestamp with time zone",
        "timestamp_ns",
        "time with time zone",
        "uhugeint",
        "int[]",
        "int[3]",
        "text[][]",
        "struct(a int, b struct(c text[]))",
        'struct("a b" int)',
        "map(varchar, int)",
        "union(a int, b varchar)",
        "enum('a', 'b''c')",
        "bit",
        "uuid",
        "json",
        "interval",
    ],
)
def test_a_duckdb_type_is_accepted(kind: str) -> None:
    assert not refused_types([kind])


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "quux",
        "int int",
        "int as x",
        "int) , (1",
        "int); drop table x; --",
        "int; select 1",
        "int -- remark",
        "int /* remark */",
        "int) union select (1",
        "int default 5",
        "decimal(40,2)",
        "decimal(5,9)",
        "decimal(a)",
        "int]",
        "[int",
        "struct(a int",
        "(select 1)",
        "$$int$$",
        "int\x00",
        "enum('a",
        "/etc/passwd",
    ],
)
def test_anything_else_is_refused(kind: str) -> None:
    assert refused_types([kind]) == {kind}


@pytest.mark.parametrize(
    ("kind", "spelled"),
    [
        ("decimal", "decimal(38,9)"),
        ("DECIMAL", "DECIMAL(38,9)"),
        ("numeric", "numeric(38,9)"),
        ("decimal[]", "decimal(38,9)[]"),
        ("decimal(12,2)", "decimal(12,2)"),
        ("timestamp", "timestamp"),
    ],
)
def test_a_bare_decimal_is_wide(kind: str, spelled: str) -> None:
    assert with_default_scale(kind) == spelled


def columns(text: str) -> dict[str, str]:
    return {"connections.yml": f"db:\n  connector: x\n  entities:\n    a:\n      read:\n        columns:{text}\n"}


def test_names_may_be_anything_and_order_is_kept(tmp_path: Path) -> None:
    files = columns("\n          z: int\n          'a b': text\n          Ünder: date\n          a\"b: bool")
    read = loaded(tmp_path, files).project.connections["db"].entities["a"].read
    assert read is not None
    assert read.columns is not None
    assert list(read.columns.items()) == [("z", "int"), ("a b", "text"), ("Ünder", "date"), ('a"b', "bool")]


@pytest.mark.parametrize(
    ("text", "line", "hint"),
    [
        (" [a]", 6, ""),
        (" {}", 6, "leave columns out"),
        ("\n          a: int\n          A: int", 8, "keep one"),
        ("\n          a: int\n          b: intt", 8, "did you mean 'int'?"),
        ("\n          a:", 7, "such as int"),
        ("\n          a: [int]", 7, "such as int"),
        ("\n          '': int", 7, "name the column"),
        ("\n          a: 5", 7, "DuckDB type"),
    ],
)
def test_faults_have_line_and_hint(tmp_path: Path, text: str, line: int, hint: str) -> None:
    (problem,) = refused(tmp_path, columns(text))
    assert (problem.code, problem.where) == ("PZ0101", f"connections.yml:{line}")
    assert hint in problem.advice


def test_a_type_with_a_comma_inside_braces_needs_quotes(tmp_path: Path) -> None:
    problems = refused(tmp_path, columns(" {a: decimal(12,2)}"))
    assert any("quotes" in problem.advice for problem in problems)


def test_no_columns_means_no_contract(tmp_path: Path) -> None:
    read = loaded(tmp_path, columns("")).project.connections["db"].entities["a"].read
    assert read is not None
    assert read.columns is None
