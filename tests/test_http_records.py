"""Records: where they are, what becomes of them under a contract and raw, and what does not fit."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from http_server import Api, Reply
from http_support import ID, read
from pz.errors import Code, PermanentError

ONE = [{"id": 1}]


def served(body: str | bytes, options: dict[str, Any], columns: dict[str, str] | None, **more: Any) -> list[Any]:
    content = body.encode() if isinstance(body, str) else body
    with Api() as api:
        api.on("GET", "/items", Reply(200, {"Content-Type": "application/json"}, content))
        return read(api, options, columns, **more)


@pytest.mark.parametrize(
    ("items", "body"),
    [
        (None, '[{"id": 1}]'),
        ("", '{"id": 1}'),
        ("/data", '{"data": [{"id": 1}], "x": [1]}'),
        ("/a/0/b~1c", '{"a": [{"b/c": [{"id": 1}]}, 5]}'),
        ("/data", '{"data": {"id": 1}}'),
        ("$.data[*]", '{"data": [{"id": 1}]}'),
        ("$..v[?@.id > 0]", '{"a": {"v": [{"id": 1}, {"id": 0}]}}'),
    ],
)
def test_records_are_found_by_pointer_or_path(items: str | None, body: str) -> None:
    assert served(body, {} if items is None else {"items": items}, ID) == ONE


def test_null_is_no_record_and_a_way_to_nowhere_is_an_error_unless_declared() -> None:
    assert served('{"data": null}', {"items": "/data"}, ID) == []
    for items, body in (
        ("/data", '{"Data": []}'),
        ("/a/1", '{"a": [[]]}'),
        ("$.data[*]", '{"dat": []}'),
        ("/a/b", '{"a": 1}'),
    ):
        with pytest.raises(PermanentError, match="leads nowhere") as caught:
            served(body, {"items": items}, ID)
        assert caught.value.code is Code.PZ0765
        assert served(body, {"items": items, "items_missing": "empty"}, ID) == []
    assert served('{"data": []}', {"items": "$.data[*]"}, ID) == []


def test_parents_are_copied_into_child_rows() -> None:
    body = json.dumps(
        {
            "shop": {"name": "s"},
            "orders": [
                {"id": 7, "total": 1.10, "lines": [{"sku": "a"}, {"sku": "b"}]},
                {"id": 8, "lines": [{"sku": "c"}]},
            ],
        }
    )
    options = {
        "items": "$.orders[*].lines[*]",
        "parents": {"order_id": "/id", "total": "/total", "shop": "4/shop/name"},
    }
    columns = {"sku": "varchar", "order_id": "bigint", "total": "decimal(9,2)", "shop": "varchar"}
    assert served(body, options, columns) == [
        {"sku": "a", "order_id": 7, "total": Decimal("1.10"), "shop": "s"},
        {"sku": "b", "order_id": 7, "total": Decimal("1.10"), "shop": "s"},
        {"sku": "c", "order_id": 8, "total": None, "shop": "s"},
    ]
    with pytest.raises(PermanentError, match="has 'sku' of its own"):
        served(body, {**options, "parents": {"sku": "/id"}}, columns)
    with pytest.raises(PermanentError, match="goes up further than the document"):
        served(body, {**options, "parents": {"x": "9/id"}}, columns)


EXACT = [
    ("bigint", "9007199254740993", 9007199254740993),
    ("ubigint", "18446744073709551615", 18446744073709551615),
    ("tinyint", "-128", -128),
    ("decimal(38,10)", "1234567890123456789.0123456789", Decimal("1234567890123456789.0123456789")),
    ("decimal(9,2)", '"12.50"', Decimal("12.50")),
    ("decimal(9,2)", "1e2", Decimal("100.00")),
    ("double", "1", 1.0),
    ("double", "0.1", 0.1),
    ("boolean", "true", True),
    ("varchar", '"\\u00e9\\u0000 \\ud83d\\ude00"', "é\x00 😀"),
    ("varchar", "1.10", "1.10"),
    ("varchar", "true", "true"),
    ("varchar", '{"a": [1, null]}', '{"a": [1, null]}'),
    ("varchar", "null", None),
    ("date", '"2024-02-29"', date(2024, 2, 29)),
    ("timestamp", '"2024-02-29T12:00:00.1234569"', datetime(2024, 2, 29, 12, 0, 0, 123456)),
    ("timestamp", '"2024-02-29 12:00:00Z"', datetime(2024, 2, 29, 12)),
    ("timestamp", '"2024-02-29T12:00:00+00:00"', datetime(2024, 2, 29, 12)),
    ("timestamp", '"2024-02-29"', datetime(2024, 2, 29)),
    ("timestamptz", '"2024-02-29T12:00:00.5+02:00"', datetime(2024, 2, 29, 10, 0, 0, 500000, UTC)),
    ("timestamptz", '"2024-02-29T12:00:00-0530"', datetime(2024, 2, 29, 17, 30, tzinfo=UTC)),
    ("timestamptz", '"2024-02-29T12:00:00"', datetime(2024, 2, 29, 12, tzinfo=UTC)),
    ("timestamptz", '"2024-02-29t12:00:00z"', datetime(2024, 2, 29, 12, tzinfo=UTC)),
    ("timestamp", '"2024-02-29t12:00:00z"', datetime(2024, 2, 29, 12)),
    ("float", "0.5", 0.5),
    ("timestamptz", '"2024-02-29"', datetime(2024, 2, 29, tzinfo=UTC)),
    ("integer[]", "[1, null, 3]", [1, None, 3]),
    ("struct(a integer, b varchar[])", '{"a": 1, "b": ["x\\n"], "c": 2}', {"a": 1, "b": ["x\n"]}),
]


@pytest.mark.parametrize(("kind", "text", "wanted"), EXACT)
def test_a_value_lands_exactly(kind: str, text: str, wanted: object) -> None:
    rows = served(f'[{{"v": {text}, "id": 1}}, {{"id": 2}}, {{"v": null}}]', {}, {"v": kind, "id": "bigint"})
    assert [row["v"] for row in rows] == [wanted, None, None]


MISFITS = [
    ("bigint", '"12"'),
    ("bigint", "1.5"),
    ("bigint", "9223372036854775808"),
    ("tinyint", "128"),
    ("decimal(9,2)", "1.005"),
    ("decimal(4,2)", "100"),
    ("decimal(9,2)", '"NaN"'),
    ("double", '"1"'),
    ("float", "1e39"),
    ("float", "-3.5e38"),
    ("boolean", "1"),
    ("date", '"2024-02-30"'),
    ("date", '"2024-02-28T10:00:00"'),
    ("timestamp", '"2024-02-29T12:00:00+02:00"'),
    ("timestamp", '"hello-secret"'),
    ("timestamptz", "1700000000"),
    ("integer[]", '["secret"]'),
    ("uuid", '"secret"'),
    ("time", "17"),
    ("struct(a integer)", '"secret"'),
    ("enum('a', 'b')", '"secret"'),
    ("map(varchar, integer)", '["secret"]'),
    ("hugeint", '"secret"'),
]


@pytest.mark.parametrize(("kind", "text"), MISFITS)
def test_a_value_that_does_not_fit_is_told_by_column_and_never_by_value(kind: str, text: str) -> None:
    with pytest.raises(PermanentError) as caught:
        served(f'[{{"value": null}}, {{"value": {text}}}]', {}, {"other": "integer[]", "value": kind, "more": "uuid"})
    assert "'value'" in caught.value.message
    assert (
        text.strip('"[]') not in caught.value.message.replace("TIMESTAMP", "").replace("DECIMAL(9,2)", "")
        or text == "1"
    )
    assert caught.value.code == Code.PZ0766
    assert caught.value.message.startswith("GET api:/items: column 'value'")


def test_raw_landing_keeps_the_text_the_page_and_the_moment_and_takes_the_cursor_out() -> None:
    body = '[ {"id":1.10, "n":123456789012345678901234567890, "at": {"x": "2024-01-01T00:00:00Z"}} ,{"id": 2}]'
    rows = served(body, {}, None)
    assert [row["payload"] for row in rows] == [
        '{"id":1.10, "n":123456789012345678901234567890, "at": {"x": "2024-01-01T00:00:00Z"}}',
        '{"id": 2}',
    ]
    assert {row["pz_page"] for row in rows} == {0}
    assert len({row["pz_fetched_at"] for row in rows}) == 1
    assert list(rows[0]) == ["payload", "pz_page", "pz_fetched_at"]
    options = {"cursor": "seen", "cursor_type": "timestamptz", "cursor_pointer": "/at/x"}
    assert [row["seen"] for row in served(body, options, None)] == [datetime(2024, 1, 1, tzinfo=UTC), None]
    decimals = served('[{"d": 1.123456789}]', {"cursor": "d", "cursor_type": "decimal"}, None)
    assert decimals[0]["d"] == Decimal("1.123456789")
    with pytest.raises(PermanentError, match="cursor 'id'"):
        served('[{"id": "x"}]', {"cursor": "id", "cursor_type": "bigint"}, None)
    with pytest.raises(PermanentError, match="not UTF-8"):
        served(b'[{"id": "\xff"}]', {}, None)


def test_keys_repeated_escaped_and_of_another_case_are_told_apart() -> None:
    rows = served('[{"ID": 9, "id": 1, "\\u0061b": "x", "id": 2}]', {}, {"id": "bigint", "ab": "varchar"})
    assert rows == [{"id": 2, "ab": "x"}]


def test_a_wide_contract_takes_the_slow_and_the_fast_columns_in_order() -> None:
    columns = {"a": "integer[]", "b": "varchar", "c": "json", "d": "uuid", "e": "bigint"}
    record = {"a": [1], "b": "x", "c": {"k": 1}, "d": "12345678-1234-5678-1234-567812345678", "e": 5}
    rows = served(json.dumps([record, {}, record], indent=2), {}, columns)
    assert [row["e"] for row in rows] == [5, None, 5]
    assert [row["a"] for row in rows] == [[1], None, [1]]
    assert json.loads(rows[2]["c"]) == {"k": 1}
    assert str(rows[0]["d"]) == record["d"]
