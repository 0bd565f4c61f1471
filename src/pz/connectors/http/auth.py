"""How a request proves who asks. Credentials are added to a request last, and never become part of a stored URL.

An OAuth2 access token (client credentials, RFC 6749, 4.4) lives in memory only. It is renewed shortly before it expires, and
once when the API refuses it in the middle of a crawl.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from pz.connectors.http.headers import is_value, name_fault
from pz.connectors.http.redaction import Redactor
from pz.errors import Code, PermanentError
from pz.frozen import frozen

__all__ = ["AUTH_SCHEMA", "Auth", "AuthSettings", "TokenRequest", "auth_faults"]

_TEXT = {"type": "string", "minLength": 1}


AUTH_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "description": "How requests prove who asks: api_key, bearer, basic or oauth2_client_credentials.",
    "required": ["type"],
    "additionalProperties": False,
    "properties": {
        "type": {
            "enum": ["none", "api_key", "bearer", "basic", "oauth2_client_credentials"],
            "description": "Which of them; the keys below belong to one type each.",
        },
        "key": {**_TEXT, "description": "api_key: the key."},
        "header": {**_TEXT, "description": "api_key: the header that carries it. Exactly one of header and param."},
        "param": {**_TEXT, "description": "api_key: the query parameter that carries it."},
        "token": {**_TEXT, "description": "bearer: the token."},
        "user": {"type": "string", "description": "basic: the user."},
        "password": {"type": "string", "description": "basic: the password."},
        "token_url": {**_TEXT, "description": "oauth2: where access tokens come from; absolute."},
        "client_id": {**_TEXT, "description": "oauth2: the client."},
        "client_secret": {**_TEXT, "description": "oauth2: its secret."},
        "scope": {**_TEXT, "description": "oauth2: scopes, separated by blanks."},
        "audience": {**_TEXT, "description": "oauth2: the audience, where the server asks for one."},
        "credentials_in": {"enum": ["header", "body"], "description": "oauth2: basic header (default) or form body."},
    },
}

_NEEDS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "none": (frozenset(), frozenset()),
    "api_key": (frozenset({"key"}), frozenset({"header", "param"})),
    "bearer": (frozenset({"token"}), frozenset()),
    "basic": (frozenset({"user", "password"}), frozenset()),
    "oauth2_client_credentials": (
        frozenset({"token_url", "client_id", "client_secret"}),
        frozenset({"scope", "audience", "credentials_in"}),
    ),
}
_EARLY = 30.0
_LIFETIME = 3600.0
"""Seconds that a token is taken to live when its server does not say."""


def auth_faults(options: Mapping[str, Any]) -> list[str]:
    """Faults of an ``auth`` block that a schema does not see; offline."""
    kind = str(options.get("type"))
    if kind not in _NEEDS:
        return []
    needed, further = _NEEDS[kind]
    given = set(options) - {"type"}
    faults = [f"auth: {kind} needs {name}" for name in sorted(needed - given)]
    faults += [f"auth: {kind} has no {name}" for name in sorted(given - needed - further)]
    if kind == "api_key" and len(given & {"header", "param"}) != 1:
        faults.append("auth: api_key needs exactly one of header and param")
    if "header" in given:
        fault = name_fault(str(options["header"]))
        faults += [] if fault is None else [f"auth: {fault}"]
    in_header = [name for name in ("token", "key") if name in given and "param" not in given]
    faults += [f"auth: {name} must be printable ASCII" for name in in_header if not is_value(str(options[name]))]
    if kind == "basic" and ":" in str(options.get("user", "")):
        faults.append("auth: a basic user cannot hold a colon")
    return faults


@frozen
class AuthSettings:
    """A checked ``auth`` block."""

    kind: str = "none"
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Mapping[str, Any] | None) -> AuthSettings:
        """From the connection's options, of which `auth_faults` found none."""
        return cls() if options is None else cls(str(options["type"]), options)

    @property
    def param(self) -> str | None:
        """The query parameter that carries the key, if one does; it is stripped from every URL that is kept."""
        return str(self.options["param"]) if "param" in self.options else None

    def secrets(self) -> list[str]:
        """What must never be published."""
        names = ("key", "token", "password", "client_secret")
        found = [str(self.options[name]) for name in names if name in self.options]
        if self.kind == "basic":
            found.append(_basic(str(self.options["user"]), str(self.options["password"])))
        if self.kind == "oauth2_client_credentials":
            found.append(_basic(str(self.options["client_id"]), str(self.options["client_secret"])))
        return found


@frozen
class TokenRequest:
    """The form and headers that ask for an access token."""

    url: str
    form: Mapping[str, str]
    headers: Mapping[str, str]


FetchToken = Callable[[TokenRequest], Mapping[str, Any]]


class Auth:
    """Adds credentials to requests. Thread-safe: one token serves all readers of an opened source or sink."""

    def __init__(self, settings: AuthSettings, redactor: Redactor, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._redactor = redactor
        self._clock = clock
        self._lock = threading.Lock()
        self._token: str | None = None
        self._good_until = 0.0

    @property
    def param(self) -> tuple[str, str] | None:
        """The query parameter to add, if the key travels there."""
        name = self._settings.param
        return None if name is None else (name, str(self._settings.options["key"]))

    @property
    def renewable(self) -> bool:
        """Whether a refused token may be replaced by a fresh one."""
        return self._settings.kind == "oauth2_client_credentials"

    def headers(self, fetch: FetchToken) -> dict[str, str]:
        """The headers to add; ``fetch`` asks for a token, through the gate, where one is needed."""
        options = self._settings.options
        if self._settings.kind == "api_key" and "header" in options:
            return {str(options["header"]): str(options["key"])}
        if self._settings.kind == "bearer":
            return {"Authorization": f"Bearer {options['token']}"}
        if self._settings.kind == "basic":
            return {"Authorization": f"Basic {_basic(str(options['user']), str(options['password']))}"}
        if self.renewable:
            return {"Authorization": f"Bearer {self._access_token(fetch)}"}
        return {}

    def forget(self, headers: Mapping[str, str]) -> None:
        """Drop the token that these headers carry: the API refused it. A token renewed meanwhile is kept."""
        with self._lock:
            if self._token is not None and headers.get("Authorization") == f"Bearer {self._token}":
                self._token = None

    def _access_token(self, fetch: FetchToken) -> str:
        with self._lock:
            if self._token is None or self._clock() >= self._good_until:
                asked = self._clock()
                answer = fetch(_token_request(self._settings.options))
                self._token = _token_of(answer)
                self._redactor.add(self._token)
                lifetime = _lifetime(answer)
                self._good_until = asked + lifetime - min(_EARLY, lifetime / 10)
            return self._token


def _token_request(options: Mapping[str, Any]) -> TokenRequest:
    form = {"grant_type": "client_credentials"}
    form |= {name: str(options[name]) for name in ("scope", "audience") if name in options}
    user, password = str(options["client_id"]), str(options["client_secret"])
    if options.get("credentials_in") == "body":
        return TokenRequest(str(options["token_url"]), {**form, "client_id": user, "client_secret": password}, {})
    from urllib.parse import quote_plus

    # RFC 6749, 2.3.1: both parts are form-encoded before they go into the header.
    basic = _basic(quote_plus(user), quote_plus(password))
    return TokenRequest(str(options["token_url"]), form, {"Authorization": f"Basic {basic}"})


def _token_of(answer: Mapping[str, Any]) -> str:
    token = answer.get("access_token")
    kind = answer.get("token_type", "Bearer")
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
        raise PermanentError("the token endpoint gave no access token", code=Code.PZ0771)
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise PermanentError("the token endpoint gave a token that is not a bearer token", code=Code.PZ0771)
    return token


def _lifetime(answer: Mapping[str, Any]) -> float:
    seconds = answer.get("expires_in", _LIFETIME)
    try:
        return min(max(float(seconds), 0.0), 86_400.0)
    except (TypeError, ValueError):
        return _LIFETIME


def _basic(user: str, password: str) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()
