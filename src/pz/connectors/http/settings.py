"""The connection: its options, their faults, and what they mean."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pz.connectors.contract import ConnectionSpec
from pz.connectors.http.auth import AUTH_SCHEMA, AuthSettings, auth_faults
from pz.connectors.http.headers import header_faults, spelled
from pz.connectors.http.origins import Origins, parse_url
from pz.connectors.http.paths import path_faults
from pz.connectors.http.redaction import Redactor, leaves
from pz.connectors.localpath import local_path
from pz.errors import Code, PermanentError
from pz.frozen import frozen

if TYPE_CHECKING:
    import httpx

__all__ = ["CONNECTION_SCHEMA", "Settings", "connection_faults"]

CONNECTION_SCHEMA: Mapping[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "required": ["base_url"],
    "properties": {
        "base_url": {
            "type": "string",
            "minLength": 1,
            "description": "Absolute http or https URL; paths of datasets and outputs lie below it.",
            "examples": ["https://api.example.com/v1"],
        },
        "auth": AUTH_SCHEMA,
        "headers": {
            "type": "object",
            "additionalProperties": {"type": ["string", "integer", "number", "boolean"]},
            "description": "Sent with every request.",
            "examples": [{"Accept-Language": "en"}],
        },
        "check_path": {
            "type": "string",
            "description": "What the connection check gets (default: the base URL); any 2xx is a yes.",
            "examples": ["/status"],
        },
        "timeout_seconds": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 3600,
            "description": "Longest wait for a connection, for the head of an answer, and for each further part (default 30).",
        },
        "max_response_mb": {
            "type": "integer",
            "minimum": 1,
            "maximum": 4096,
            "description": "Largest response, decompressed (default 256). A json page is parsed as a whole.",
        },
        "allow_hosts": {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "description": "Further host names that next links and redirects may lead to, with the credentials.",
        },
        "proxy": {
            "type": "string",
            "minLength": 1,
            "description": "URL of a proxy; may hold credentials. Proxy variables of the environment are not read.",
        },
        "ca_file": {"type": "string", "minLength": 1, "description": "PEM file of authorities to trust instead."},
        "client_cert": {"type": "string", "minLength": 1, "description": "PEM file of a client certificate."},
        "client_key": {"type": "string", "minLength": 1, "description": "PEM file of its key, if kept apart."},
        "client_key_password": {"type": "string", "description": "What the key is encrypted with."},
    },
}


def connection_faults(options: Mapping[str, Any]) -> list[str]:
    """Faults of a connection's options that a schema does not see, all of them; offline; never raises for bad types."""
    faults: list[str] = []
    base = options.get("base_url")
    url = parse_url(base) if isinstance(base, str) else None
    if url is None:
        faults.append("base_url must be an absolute http or https URL without user and password")
    elif url.query or url.fragment:
        faults.append("base_url cannot hold a query or a fragment")
    auth = options.get("auth")
    if isinstance(auth, Mapping):
        faults += auth_faults(auth)
        token_url = auth.get("token_url")
        if token_url is not None and (not isinstance(token_url, str) or parse_url(token_url) is None):
            faults.append("auth: token_url must be an absolute http or https URL without user and password")
    faults += _header_faults(options.get("headers"), auth)
    if isinstance(options.get("check_path"), str):
        faults += path_faults("check_path", f"/{options['check_path'].removeprefix('/')}")
    hosts = options.get("allow_hosts")
    for host in hosts if isinstance(hosts, list) else []:
        if not isinstance(host, str) or "/" in host or ":" in host or parse_url(f"http://{host}") is None:
            faults.append("allow_hosts takes bare host names, without scheme, port and path")
    if "client_key" in options and "client_cert" not in options:
        faults.append("client_key needs client_cert")
    if "proxy" in options and not _proxy_is_fine(options["proxy"]):
        faults.append("proxy must be an http or https URL")
    return faults


def _header_faults(headers: object, auth: object) -> list[str]:
    faults = list(header_faults(headers))
    if isinstance(auth, Mapping) and auth.get("type") in {"bearer", "basic", "oauth2_client_credentials"}:
        named = {str(name).lower() for name in (headers if isinstance(headers, Mapping) else {})}
        if "authorization" in named:
            faults.append("headers: Authorization is set by auth")
    return faults


def _proxy_is_fine(text: object) -> bool:
    import httpx

    try:
        url = httpx.URL(str(text))
    except (httpx.InvalidURL, ValueError):
        return False
    return url.scheme in {"http", "https"} and bool(url.host)


@frozen(slots=False)
class Settings:
    """A connection without faults."""

    name: str
    base: httpx.URL
    origins: Origins
    auth: AuthSettings = field(default_factory=AuthSettings)
    headers: Mapping[str, str] = field(default_factory=dict)
    check_path: str | None = None
    timeout: float = 30.0
    max_bytes: int = 256 * 2**20
    proxy: str | None = None
    tls: Mapping[str, Any] = field(default_factory=dict)
    base_dir: Path = Path()

    @classmethod
    def of(cls, spec: ConnectionSpec) -> Settings:
        """Raises PermanentError PZ0760 with every fault."""
        options = spec.options
        faults = connection_faults(options)
        if faults:
            raise PermanentError(f"connection '{spec.name}': {'; '.join(faults)}", code=Code.PZ0760)
        base = parse_url(str(options["base_url"]))
        assert base is not None
        base = base.copy_with(raw_path=base.raw_path.rstrip(b"/") + b"/")
        hosts = frozenset(str(host).lower() for host in options.get("allow_hosts", []))
        return cls(
            name=spec.name,
            base=base,
            origins=Origins(base, hosts),
            auth=AuthSettings.of(options.get("auth")),
            headers={str(name): spelled(value) for name, value in options.get("headers", {}).items()},
            check_path=options.get("check_path"),
            timeout=float(options.get("timeout_seconds", 30)),
            max_bytes=int(options.get("max_response_mb", 256)) * 2**20,
            proxy=options.get("proxy"),
            tls={name: options[name] for name in _TLS if name in options},
            base_dir=spec.base_dir,
        )

    def redactor(self, *entity_options: object) -> Redactor:
        """One that knows the connection's secrets and the texts inside further options (query, body, headers)."""
        told = [text for text in (*self.headers.values(), *leaves(list(entity_options))) if len(text) >= _TELLING]
        redactor = Redactor([*self.auth.secrets(), *told])
        if self.proxy is not None:
            import httpx

            redactor.add(httpx.URL(self.proxy).password)
        if "client_key_password" in self.tls:
            redactor.add(str(self.tls["client_key_password"]))
        return redactor

    def peer(self, url: httpx.URL) -> str:
        """Host and port that a request to ``url`` connects to, as a message tells them."""
        import httpx

        name, met = ("", url) if self.proxy is None else ("the proxy ", httpx.URL(self.proxy))
        port = met.port or (443 if met.scheme == "https" else 80)
        host = f"[{met.host}]" if ":" in met.host else met.host
        return f"{name}{host}:{port}"

    def verify(self) -> ssl.SSLContext | None:
        """What TLS connections are checked with; None leaves it to the client library, which need not load it then.

        Raises PermanentError PZ0760 when a file cannot be used.
        """
        if self.base.scheme == "http" and not self.tls:
            return None
        ca = self._file("ca_file")
        try:
            context = ssl.create_default_context(cafile=None if ca is None else str(ca))
            certificate = self._file("client_cert")
            if certificate is not None:
                key = self._file("client_key")
                password = str(self.tls.get("client_key_password", ""))
                context.load_cert_chain(certificate, key, password=lambda: password)
        except (OSError, ValueError) as error:
            message = f"connection '{self.name}': a certificate or key file cannot be used"
            raise PermanentError(message, code=Code.PZ0760) from error
        return context

    def _file(self, name: str) -> Path | None:
        return local_path(self.base_dir, str(self.tls[name])) if name in self.tls else None


_TELLING = 6
"""Shorter texts of headers and queries (``asc``, ``open``) are words that a message may hold."""

_TLS = ("ca_file", "client_cert", "client_key", "client_key_password")
