"""Which hosts may be asked: the origin of the base URL, and hosts that the connection lists.

Whatever the far side names (a next link, a redirect, a stored token) is checked here before a request leaves, because a
request carries credentials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pz.errors import Code, PermanentError
from pz.frozen import frozen

if TYPE_CHECKING:
    import httpx

__all__ = ["Origins", "joined", "parse_url"]

_PORTS = {"http": 80, "https": 443}
_PORTS_END = 65_536


def parse_url(text: str) -> httpx.URL | None:
    """An absolute http or https URL without credentials in it; None for anything else."""
    import httpx

    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError, TypeError):
        return None
    if url.scheme not in _PORTS or url.userinfo or not _is_host(url.host):
        return None
    return url if url.port is None or 0 < url.port < _PORTS_END else None


def _is_host(text: str) -> bool:
    try:
        return bool(text) and "%" not in text and bool(text.encode("idna"))
    except UnicodeError:  # an empty label, one of more than 63 characters
        return False


def joined(base: httpx.URL, reference: str) -> httpx.URL | None:
    """A reference as an absolute URL, seen from another; None unless it is a http or https URL without credentials.

    Without its fragment: servers get none, and two URLs that differ in it alone are one.
    """
    import httpx

    try:
        return parse_url(str(base.join(reference).copy_with(fragment=None)))
    except (httpx.InvalidURL, ValueError):
        return None


@frozen
class Origins:
    """The base URL's scheme, host and port, and further host names that are allowed with the same scheme."""

    base: httpx.URL
    hosts: frozenset[str] = frozenset()

    def allows(self, url: httpx.URL) -> bool:
        """Whether a request may go there. A listed host must use the base's scheme, on any port."""
        if _origin(url) == _origin(self.base):
            return True
        return url.host.lower() in self.hosts and url.scheme == self.base.scheme

    def require(self, url: httpx.URL, what: str) -> None:
        """Raise PermanentError PZ0763, naming only the authority, unless the URL is allowed."""
        if not self.allows(url):
            raise PermanentError(
                f"{what} points to {url.scheme}://{url.netloc.decode('ascii', 'replace')}, which is not the connection's origin",
                code=Code.PZ0763,
                hint="add the host to allow_hosts if it may get the connection's credentials",
            )


def _origin(url: httpx.URL) -> tuple[str, str, int]:
    return url.scheme, url.host.lower(), url.port or _PORTS.get(url.scheme, 0)
