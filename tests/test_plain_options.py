"""Options of the plainest words are accepted without `jsonschema`, and only such as it would accept."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from pz.connectors.options import plainly_fits
from pz.connectors.postgres.connect import CONNECTION_SCHEMA
from pz.connectors.postgres.sink import OUTPUT_SCHEMA
from pz.connectors.postgres.source import DATASET_SCHEMA

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 20)
    | st.floats()
    | st.sampled_from(["", "a", "truncate", "swap", "bcd"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), inner, max_size=3)
    ),
    max_leaves=4,
)
schemas = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "integer", "number", "boolean", "null", ["string", "integer"]]),
            "enum": st.lists(st.sampled_from(["a", "swap", 1, True, None]), min_size=1, max_size=3, unique_by=repr),
            "minLength": st.integers(0, 3),
            "minimum": st.integers(-2, 5),
            "maximum": st.integers(-2, 5),
            "pattern": st.just("^a"),
            "description": st.just("words"),
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {"type": st.sampled_from(["object", "array"])},
        optional={
            "properties": st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
            "required": st.lists(st.sampled_from(["a", "b"]), max_size=2, unique=True),
            "additionalProperties": st.booleans() | inner,
            "items": inner,
            "oneOf": st.lists(inner, min_size=1, max_size=2),
        },
    ),
    max_leaves=4,
)


@given(schemas, values)
def test_what_is_accepted_at_a_glance_is_accepted_by_jsonschema(schema: dict[str, Any], value: Any) -> None:
    if plainly_fits(schema, value):
        Draft202012Validator(schema).validate(value)


@pytest.mark.parametrize(
    ("schema", "options"),
    [
        (CONNECTION_SCHEMA, {"host": "h", "port": 5432, "database": "d", "user": "u", "ssl_mode": "require"}),
        (DATASET_SCHEMA, {"partition_column": "id", "partitions": 4, "consistent": True}),
        (OUTPUT_SCHEMA, {"replace_method": "swap"}),
    ],
)
def test_ordinary_options_are_accepted_at_a_glance(schema: dict[str, Any], options: dict[str, Any]) -> None:
    assert plainly_fits(schema, options)
    assert not plainly_fits(schema, {**options, "unknown": 1})


def test_options_without_a_fault_are_checked_without_importing_jsonschema() -> None:
    script = (
        "import sys\n"
        "from pz.connectors.options import Side, check_options\n"
        "from pz.connectors.postgres.connector import Postgres\n"
        "given = {'host': 'h', 'database': 'd', 'port': '5432'}\n"
        "assert check_options(Postgres(), Side.CONNECTION, given, subject='it') == ()\n"
        "assert 'jsonschema' not in sys.modules\n"
        "assert check_options(Postgres(), Side.CONNECTION, {**given, 'port': 0}, subject='it')\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
