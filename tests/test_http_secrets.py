"""Secrets never appear: every failure is run with recognisable ones, and all that is left behind is searched for them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import quote

import pytest

from cli_support import Capture
from http_server import Api, Asked, Reply
from projects import write
from pz.cli.main import answer
from pz.cli.output import Output
from pz.connectors.http.redaction import without_values

SECRETS = {
    "KEY": "key-S3CR3T/a+b=1",
    "HEADER": "header-S3CR3T-2",
    "QUERY": "query-S3CR3T 3",
    "BODY": "body-S3CR3T-4",
    "PASSWORD": "pass-S3CR3T-5",
    "CLIENT": "client-S3CR3T-6",
    "ROW": "row-S3CR3T-7",
    "TOKEN": "access-S3CR3T-8",
}

AUTHS = {
    "api_key header": "{ type: api_key, key: '${KEY}', header: X-Key }",
    "api_key param": "{ type: api_key, key: '${KEY}', param: api_key }",
    "bearer": "{ type: bearer, token: '${KEY}' }",
    "basic": "{ type: basic, user: me, password: '${PASSWORD}' }",
    "oauth2": "{{ type: oauth2_client_credentials, token_url: '{url}/token', client_id: me, client_secret: '${{CLIENT}}' }}",
}

CONNECTIONS = """
api:
  connector: http
  base_url: {url}
  auth: {auth}
  headers: {{ X-Secret: '${{HEADER}}' }}
  timeout_seconds: 0.5
  retry: {{ max_attempts: 1 }}
lake:
  connector: localfiles
  root: out
"""

READ = """
INSERT INTO {{ sink('lake', 'items', strategy: 'replace', format: 'csv') }}
SELECT * FROM {{ source('api', 'items', path: '/items', method: 'POST', query: {token: 'query-S3CR3T 3'},
  body: {secret: 'body-S3CR3T-4'}, items: '/items', columns: {id: 'bigint'}, pagination: {strategy: 'page', param: 'p'}) }}
"""

WRITE = """
INSERT INTO {{ sink('api', 'rows', %s, path: '/rows%s', query: {token: 'query-S3CR3T 3'}) }}
SELECT 'row-S3CR3T-7' AS id, 'body-S3CR3T-4' AS text
"""


def echo(asked: Asked) -> bytes:
    """Everything that was asked, in every spelling, as a careless server would send it back."""
    return json.dumps(
        {
            "error": f"bad request {asked.target} {dict(asked.headers)} {asked.body.decode()}",
            "authorization": asked.headers.get("authorization"),
            "password": "server-side-pass-S3CR3T-9",
            "access_token": SECRETS["TOKEN"],
        }
    ).encode()


FAILURES = {
    "400": lambda asked: Reply(400, {}, echo(asked)),
    "401": lambda asked: Reply(401, {"WWW-Authenticate": f"Bearer {SECRETS['KEY']}"}, echo(asked)),
    "500": lambda asked: Reply(500, {}, echo(asked)),
    "429": lambda asked: Reply(429, {"Retry-After": "0"}, echo(asked)),
    "redirect": lambda asked: Reply(
        307, {"Location": f"http://elsewhere.example.com/?k={SECRETS['KEY']}"}, echo(asked)
    ),
    "redirect to nothing": lambda asked: Reply(302, {"Location": f"ht!tp://{SECRETS['KEY']}"}),
    "cut": lambda asked: Reply(200, {"Content-Type": "application/json"}, echo(asked), cut=30),
    "silent": lambda asked: Reply(cut=-1),
    "slow": lambda asked: Reply(delay=2),
    "html": lambda asked: Reply(200, {"Content-Type": "text/html"}, echo(asked)),
    "not json": lambda asked: Reply(200, {"Content-Type": "application/json"}, b"{" + echo(asked)),
    "no items": lambda asked: Reply(200, {"Content-Type": "application/json"}, echo(asked)),
    "wrong type": lambda asked: Reply.json({"items": [{"id": SECRETS["ROW"]}]}),
    "bad gzip": lambda asked: Reply(200, {"Content-Encoding": "gzip"}, echo(asked)),
    "repeats": lambda asked: Reply.json({"items": [{"id": 1}], "echo": echo(asked).decode()}),
    "success": lambda asked: Reply.json({"items": []}),
}


def spellings(secret: str) -> set[bytes]:
    texts = {secret, quote(secret, safe=""), secret.replace(" ", "+"), json.dumps(secret)[1:-1]}
    found = {text.encode() for text in texts}
    return found | {base64.b64encode(secret.encode()).rstrip(b"="), base64.b64encode(f"me:{secret}".encode())}


def search(root: Path, console: str, allowed: frozenset[str]) -> list[str]:
    """Where a secret shows; what the project itself holds (its SQL, the staged rows) is not looked at."""
    found = []
    for name, secret in {**SECRETS, "ECHO": "S3CR3T-9"}.items():
        for text in spellings(secret):
            if text in console.encode():
                found.append(f"{name} on the console")
            for path in (root / ".pz").rglob("*"):
                if path.is_file() and path.name not in allowed and text in path.read_bytes():
                    found.append(f"{name} in {path.relative_to(root)}")
    return found


def attempt(root: Path, monkeypatch: pytest.MonkeyPatch, connections: str, sql: str) -> str:
    """`pz run` and `pz retry`, as text, as live events and as json lines; everything that was printed."""
    for name, secret in SECRETS.items():
        monkeypatch.setenv(name, secret)
    write(root, {"project.yml": "name: x\nversion: '1'\n", "connections.yml": connections, "pipelines/moved.sql": sql})
    monkeypatch.chdir(root)
    out, err = Capture(), Capture()
    for command in (["run", "--all", "-vv"], ["retry", "--log-format", "json"], ["plan"]):
        answer(command, Output(out, err))
    return out.getvalue() + err.getvalue()


# The user's own SQL holds the query and the body that this test wrote there; the staged rows are the data.
OWN = frozenset({"moved.sql", "manifest.json", "staging.duckdb", "staging.duckdb.wal"})


# Every failure under one kind of auth, and every kind of auth under the failure that echoes everything.
SOURCES = [(list(AUTHS)[n % len(AUTHS)], failure) for n, failure in enumerate(FAILURES)] + [(a, "400") for a in AUTHS]


@pytest.mark.parametrize(("auth", "failure"), sorted(set(SOURCES)))
def test_no_failure_of_a_source_shows_a_secret(
    auth: str, failure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Api() as api:
        api.route("POST", "/items", FAILURES[failure])
        api.route("POST", "/token", lambda asked: Reply.json({"access_token": SECRETS["TOKEN"], "expires_in": 60}))
        connections = CONNECTIONS.format(
            url=api.url, auth=AUTHS[auth].format(url=api.url) if auth == "oauth2" else AUTHS[auth]
        )
        console = attempt(tmp_path, monkeypatch, connections, READ)
        assert search(tmp_path, console, OWN) == []
        assert api.requests("/items")
        assert ("PZ07" in console) == (failure not in {"success"}), console
        assert '"event"' in console or failure == "success", "the events as json lines were looked at, too"


@pytest.mark.parametrize("failure", ["400", "429", "500", "redirect", "cut", "silent", "success"])
@pytest.mark.parametrize("strategy", ["append", "merge"])
def test_no_failure_of_a_sink_shows_a_secret_or_a_row(
    strategy: str, failure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Api() as api:
        api.route("POST", "/rows", FAILURES[failure])
        api.route("PUT", "/rows/*", FAILURES[failure])
        options = "strategy: 'append'" if strategy == "append" else "strategy: 'merge', keys: ['id']"
        sql = WRITE % (options, "" if strategy == "append" else "/{key}")
        console = attempt(tmp_path, monkeypatch, CONNECTIONS.format(url=api.url, auth=AUTHS["bearer"]), sql)
        assert search(tmp_path, console, OWN) == []
        assert api.requests()


def test_the_search_finds_a_secret_in_every_spelling(tmp_path: Path) -> None:
    (tmp_path / ".pz").mkdir()
    for secret in SECRETS.values():
        for text in spellings(secret):
            (tmp_path / ".pz" / "x").write_bytes(b"a" + text + b"b")
            assert search(tmp_path, "", OWN)
            assert search(tmp_path, text.decode(), frozenset({"x"}))


def test_a_failing_token_endpoint_shows_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Api() as api:
        api.route("POST", "/token", FAILURES["400"])
        connections = CONNECTIONS.format(url=api.url, auth=AUTHS["oauth2"].format(url=api.url))
        console = attempt(tmp_path, monkeypatch, connections, READ)
        assert "PZ0771" in console
        assert search(tmp_path, console, OWN) == []


SENT = (
    b'[{"id": 30, "name": "Ada Lovelace", "pin": "4711", "salary": 1250.5, '
    b'"phone": 491701234567, "when": "2024-01-31"}]'
)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("row 30 bad", "row 30 bad"),
        ("Rows #7: bad", "Rows #7: bad"),
        ('{"index": 12, "code": 1004}', '{"index": 12, "code": 1004}'),
        ("rows[3].name is too long", "rows[3].name is too long"),
        ("at most 100 characters", "at most 100 characters"),
        ("row 30 of 30", "row 30 of #"),
        ("id 30 exists", "id # exists"),
        ("row 4711 bad", "row # bad"),
        ("pin 04711 is taken", "pin # is taken"),
        ("1,250.50 is too much", "#,#.# is too much"),
        ("EUR 1250.", "EUR #."),
        ("on 31.01.2024", "on #.#.#"),
        ("+49 170 1234567", "+# # #"),
        ("Ada Lovelace, row 1", "***, row 1"),
        ("item n30", "item n#"),
        ("x" * 157 + " 1234567", "x" * 157 + " #"),
        ("x" * 150 + " Ada Lovelace", "x" * 150 + " ***"),
    ],
)
def test_numbers_of_a_server_stay_where_they_are_positions_or_none_of_ours(words: str, told: str) -> None:
    assert without_values(words, SENT, positions=40) == told


def test_a_value_that_the_end_of_the_excerpt_cuts_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Api() as api:
        api.route("POST", "/rows", lambda asked: Reply(400, {}, b"." * 150 + b" " + SECRETS["ROW"].encode()))
        sql = WRITE % ("strategy: 'append'", "")
        console = attempt(tmp_path, monkeypatch, CONNECTIONS.format(url=api.url, auth=AUTHS["bearer"]), sql)
        assert "......" in console
        assert SECRETS["ROW"][:5] not in console
