"""``connections.yml``: what is the engine's, what is the connector's, and where faults point."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from projects import loaded, places, refused
from pz.connectors.contract import OnDelete, SchemaPolicy, WriteStrategy
from pz.project.model import Location, NullCursor, RateLimit, ReadDecl, RetrySettings, SyncDecl, SyncMode, WriteDecl


def connections(tmp_path: Path, text: str, **options: object) -> dict[str, object]:
    return dict(loaded(tmp_path, {"connections.yml": text}, **options).project.connections)


def test_engine_keys_and_connector_options_are_told_apart(tmp_path: Path) -> None:
    text = """\
lake:
  connector: localfiles
  root: data
  port: 5432
  flag: true
  secret: ${S}
  nested: {a: [1, two], b: }
  unset:
  max_concurrency: 2
  rate_limit: {requests_per_minute: 120}
  retry: {max_attempts: 5, base_delay: 250ms}
  allow_unsigned_extensions: false
"""
    project = loaded(tmp_path, {"connections.yml": text}, environ={"S": "x"}).project
    lake = project.connections["lake"]
    assert lake.connector == "localfiles"
    assert lake.options == {"root": "data", "port": 5432, "flag": True, "secret": "x", "nested": {"a": [1, "two"]}}
    assert (lake.max_concurrency, lake.rate_limit) == (2, RateLimit(120, 2))
    assert lake.retry == RetrySettings(5, timedelta(milliseconds=250), None)
    assert lake.location == Location("connections.yml", 1)


def test_both_sides_of_an_entity(tmp_path: Path) -> None:
    text = """\
db:
  connector: duckdb
  entities:
    main.orders:
      read:
        query: select 1
        columns: {id: bigint, at: timestamptz, amount: decimal, tags: "text[]"}
        sync: {mode: incremental, cursor: id, initial: 0, max_window: 1000, null_cursor: include}
      write:
        strategy: merge
        keys: [id]
        dedupe_by: at
        on_delete: soft
        schema_policy: additive
        duplicates: accept
        batch: 5
    plain:
      read:
    untouched:
"""
    entities = loaded(tmp_path, {"connections.yml": text}).project.connections["db"].entities
    orders = entities["main.orders"]
    assert orders.read == ReadDecl(
        options={"query": "select 1"},
        columns={"id": "bigint", "at": "timestamptz", "amount": "decimal(38,9)", "tags": "text[]"},
        sync=SyncDecl(
            SyncMode.INCREMENTAL,
            explicit=True,
            cursor="id",
            initial="0",
            max_window="1000",
            null_cursor=NullCursor.INCLUDE,
            location=Location("connections.yml", 8),
        ),
        location=Location("connections.yml", 5),
    )
    assert orders.write == WriteDecl(
        strategy=WriteStrategy.MERGE,
        keys=("id",),
        duplicates_accepted=True,
        dedupe_by="at",
        on_delete=OnDelete.SOFT,
        schema_policy=SchemaPolicy.ADDITIVE,
        options={"batch": 5},
        location=Location("connections.yml", 9),
    )
    assert entities["plain"].read == ReadDecl(location=Location("connections.yml", 18))
    assert (entities["plain"].write, entities["untouched"].read) == (None, None)


@pytest.mark.parametrize(
    ("line", "code", "hint"),
    [
        ("connector:", "PZ0101", "add connector"),
        ("connector: [x]", "PZ0101", ""),
        ("connector: ''", "PZ0101", ""),
        ("max_concurrency: 0", "PZ0122", ""),
        ("max_concurrency: '2'", "PZ0122", "without quotes"),
        ("rate_limit: 60", "PZ0318", ""),
        ("rate_limit:", "PZ0318", ""),
        ("rate_limit: {burst: 5}", "PZ0318", "requests_per_minute"),
        ("rate_limit: {requests_per_minute: 0}", "PZ0318", ""),
        ("rate_limit: {requests_per_minute: 1000001}", "PZ0318", ""),
        ("rate_limit: {requests_per_minute: 5, brst: 1}", "PZ0318", "did you mean 'burst'?"),
        ("retry: 5", "PZ0121", ""),
        ("retry: {max_attempts: 0}", "PZ0121", ""),
        ("retry: {base_delay: 5}", "PZ0121", "30s"),
        ("retry: {base_delay: -5s}", "PZ0121", "30s"),
        ("retry: {base_delay: 5s, max_delay: 1s}", "PZ0121", "max_delay"),
        ("retry: {max_atempts: 3}", "PZ0121", "did you mean 'max_attempts'?"),
        ("allow_unsigned_extensions: yes", "PZ0101", "true or false"),
        ("entities: [a]", "PZ0101", ""),
        ("entities: a", "PZ0101", ""),
        ("entities: {a: 5}", "PZ0101", "read:"),
        ("entities: {a: {reed: {}}}", "PZ0101", "did you mean 'read'?"),
        ("entities: {a: {read: 5}}", "PZ0101", ""),
        ("entities: {a: {rate_limit: 5}}", "PZ0318", "on the connection"),
        ("entities: {a: {read: {max_concurrency: 5}}}", "PZ0122", "on the connection"),
        ("entities: {a: {write: {rate_limit: {}}}}", "PZ0318", "on the connection"),
        ("entities: {'': {}}", "PZ0344", "remote system"),
        ("entities: {'a b': {}}", "PZ0344", "remote system"),
        ("entities: {a..b: {}}", "PZ0344", "remote system"),
        ("entities: {a: {read: {sync: {}}}}", "PZ0334", "mode"),
        ("entities: {a: {read: {sync: incremental}}}", "PZ0334", "mode: incremental"),
        ("entities: {a: {read: {sync: {mode: incremntal, cursor: x}}}}", "PZ0334", "did you mean 'incremental'?"),
        ("entities: {a: {read: {sync: {mode: incremental}}}}", "PZ0334", "name the column"),
        ("entities: {a: {read: {sync: {mode: incremental, cursor: [a]}}}}", "PZ0334", ""),
        ("entities: {a: {read: {sync: {mode: incremental, cursor: a, slot: b}}}}", "PZ0334", "takes cursor"),
        (
            "entities: {a: {read: {sync: {mode: incremental, cursor: a, intial: b}}}}",
            "PZ0334",
            "did you mean 'initial'?",
        ),
        ("entities: {a: {read: {sync: {mode: incremental, cursor: ''}}}}", "PZ0334", ""),
        ("entities: {a: {read: {sync: {mode: auto, cursor: a}}}}", "PZ0334", "no other key"),
        ("entities: {a: {read: {sync: {mode: cdc, until: a}}}}", "PZ0334", "slot"),
        ("entities: {a: {read: {sync: {mode: incremental, cursor: a, null_cursor: drop}}}}", "PZ0334", "refuse"),
        ("entities: {a: {read: {sync: {mode: incremental, cursor: a, boundary: inclusive}}}}", "PZ0334", "exclusive"),
        ("entities: {a: {read: {sync: {mode: incremental, cursor: a, start: now}}}}", "PZ0334", "from_state"),
        ("entities: {a: {write: {strategy: mrege}}}", "PZ0334", "did you mean 'merge'?"),
        ("entities: {a: {write: {duplicates: true}}}", "PZ0334", "accept"),
        ("entities: {a: {write: {on_delete: delete}}}", "PZ0334", "strategy: merge"),
        ("entities: {a: {write: {dedupe_by: t}}}", "PZ0334", "strategy: merge"),
        ("entities: {a: {write: {strategy: merge, on_delete: hard}}}", "PZ0334", "soft"),
        ("entities: {a: {write: {schema_policy: aditive}}}", "PZ0334", "did you mean 'additive'?"),
        ("entities: {a: {write: {strategy: merge, keys: {a: 1}}}}", "PZ0334", ""),
        ("entities: {a: {write: {strategy: merge, keys: []}}}", "PZ0334", ""),
        ("entities: {a: {write: {strategy: merge, keys: [a, a]}}}", "PZ0334", ""),
        ("entities: {a: {read: {retry: {max_attempts: x}}}}", "PZ0121", ""),
    ],
)
def test_faults_have_code_line_and_hint(tmp_path: Path, line: str, code: str, hint: str) -> None:
    head = "" if line.startswith("connector:") else "  connector: x\n"
    (problem,) = refused(tmp_path, {"connections.yml": f"lake:\n{head}  {line}\n"})
    assert (problem.code, problem.file) == (code, "connections.yml")
    assert problem.line == 2 + bool(head)
    assert hint in problem.advice


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("my-lake", "my_lake"), ("1lake", "_1lake"), ("my__lake", "my_lake"), ("lake.x", "lake_x"), ("ü", "unnamed")],
)
def test_a_connection_needs_a_plain_name(tmp_path: Path, name: str, suggestion: str) -> None:
    (problem,) = refused(tmp_path, {"connections.yml": f"\n{name}:\n  connector: x\n"})
    assert (problem.code, problem.where) == ("PZ0136", "connections.yml:2")
    assert problem.advice == f"rename it to {suggestion}"


@pytest.mark.parametrize("name", ["select", "table", "_x", "A1"])
def test_reserved_words_are_fine_names(tmp_path: Path, name: str) -> None:
    assert list(connections(tmp_path, f"{name}:\n  connector: x\n")) == [name]


def test_a_connection_must_be_a_mapping(tmp_path: Path) -> None:
    problems = refused(tmp_path, {"connections.yml": "a: 5\nb:\nc: [1]\nd: {}\n"})
    assert places(problems) == [(problem.code, f"connections.yml:{n}") for n, problem in enumerate(problems, start=1)]
    assert {problem.code for problem in problems} == {"PZ0101"}


def test_an_option_close_to_an_engine_key_draws_a_warning(tmp_path: Path) -> None:
    text = "lake:\n  connector: x\n  retri: 1\n  entities:\n    a:\n      read: {synk: 1}\n      write: {strategi: merge}\n"
    result = loaded(tmp_path, {"connections.yml": text})
    assert [(warning.line, warning.hint) for warning in result.warnings] == [
        (3, "did you mean 'retry'?"),
        (6, "did you mean 'sync'?"),
        (7, "did you mean 'strategy'?"),
    ]
    assert result.project.connections["lake"].options == {"retri": 1}
