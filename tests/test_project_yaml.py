"""How YAML scalars are typed, where problems point, and what is refused."""

from __future__ import annotations

import pytest

from pz.errors import Problem, Problems
from pz.project.yaml_source import Block, parse_yaml, plain_value


def parsed(text: str) -> object:
    problems = Problems()
    block = parse_yaml(text, "f.yml", problems)
    assert not problems.errors
    assert block is not None
    return plain_value(block)


def refusal(text: str) -> Problem:
    problems = Problems()
    parse_yaml(text, "f.yml", problems)
    (problem,) = problems.errors
    return problem


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("5", 5),
        ("-7", -7),
        ("+7", 7),
        ("9223372036854775807", 9223372036854775807),
        ("9223372036854775808", "9223372036854775808"),
        ("-9223372036854775808", -9223372036854775808),
        ("0123456", "0123456"),
        ("0", 0),
        ("1.10", 1.1),
        ("1.5e3", 1500.0),
        ("1e5", 100000.0),
        (".5", 0.5),
        ("1.2.3", "1.2.3"),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
        (".inf", ".inf"),
        ("NaN", "NaN"),
        ("true", True),
        ("false", False),
        ("True", "True"),
        ("yes", "yes"),
        ("off", "off"),
        ("null", "null"),
        ("~", "~"),
        ("2024-01-31", "2024-01-31"),
        ("12:30:45", "12:30:45"),
        ('"5"', "5"),
        ("'true'", "true"),
        ('"0123456"', "0123456"),
        ("|\n  5\n", "5\n"),
        (">-\n  true\n", "true"),
        ("!!str 5", "5"),
    ],
)
def test_only_plain_scalars_are_typed(written: str, value: object) -> None:
    result = parsed(f"a: {written}")
    assert result == {"a": value}
    assert isinstance(result, dict)
    assert type(result["a"]) is type(value)


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n", "--- \n...\n"])
def test_an_empty_file_is_an_empty_mapping(text: str) -> None:
    assert parsed(text) == {}


def test_a_key_without_a_value_means_the_default() -> None:
    assert parsed("a:\nb:\n  c:\n  d: 1\n") == {"b": {"d": 1}}


def test_merge_keys_take_what_is_not_written_out_and_the_earlier_block_wins() -> None:
    text = "x: &x {a: 1, b: 1}\ny: &y {b: 2, c: 2}\nz:\n  <<: [*x, *y]\n  a: 3\n"
    assert parsed(text) == {"x": {"a": 1, "b": 1}, "y": {"b": 2, "c": 2}, "z": {"a": 3, "b": 1, "c": 2}}


def test_every_key_and_value_knows_its_line() -> None:
    block = parse_yaml("a: 1\n\nb:\n  c: 2\n  d:\n    - 3\n", "f.yml", Problems())
    assert block is not None
    inner = block.entries["b"]
    assert isinstance(inner, Block)
    assert (block.line_of("b"), inner.line_of("c"), inner.line_of("d")) == (3, 4, 5)


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "first on line 1"),
        ("a: 1\n---\nb: 2\n", 2, "second document"),
        ("- 1\n", 1, "a list"),
        ("just words\n", 1, "text"),
        ("a: 1\nb: [1, 2\n", 3, "not valid YAML"),
        ("a: b: c\n", 1, "not valid YAML"),
        ("a: 1\n\tb: 2\n", 2, "not valid YAML"),
        ("a: &x [1, *x]\n", 1, "contains itself"),
        ("a: &x {b: *x}\n", 1, "contains itself"),
        ("a: *nothing\n", 1, "no anchor"),
        ("a: 1\nb: !!int '5'\n", 2, "tag"),
        ("a: !python/object:os.system x\n", 1, "tag"),
        ("? [a, b]\n: 1\n", 1, "a key must be"),
        ("a: {<<: 5}\n", 1, "'<<'"),
        ("a: 1\nb: \x07\n", 2, "control character"),
        ("a: " + "[" * 200 + "]" * 200, 1, "nested deeper"),
        ("a: " + "[" * 100_000, 1, "not valid YAML"),
        ("a: \ud800", None, "not valid YAML"),
    ],
)
def test_what_is_no_single_mapping_is_refused_with_its_line(text: str, line: int | None, part: str) -> None:
    problem = refusal(text)
    assert (problem.code, problem.file, problem.line) == ("PZ0101", "f.yml", line)
    assert part in problem.message


def test_aliases_cannot_blow_up() -> None:
    layers = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10))
    assert "more than 1000000 values" in refusal(f"a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n{layers}\n").message


def test_a_key_given_twice_does_not_hide_the_next_one() -> None:
    problems = Problems()
    block = parse_yaml("a: 1\na: 2\nb: 1\nb: 2\n", "f.yml", problems)
    assert [problem.line for problem in problems.errors] == [2, 4]
    assert block is not None
    assert plain_value(block) == {"a": 1, "b": 1}
