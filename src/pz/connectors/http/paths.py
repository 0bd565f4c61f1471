"""Paths of datasets and outputs: which ones can be asked, and the URL of one below the base."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    import httpx

__all__ = ["below", "path_faults"]

_LEGAL = "%/:@!$&'()*+,;=~"


def path_faults(name: str, path: str) -> Iterator[str]:
    """Faults of an option that holds a path; offline."""
    if not path.startswith("/"):
        yield f"{name} begins with /"
    if any(part in {".", ".."} for part in path.split("/")):
        yield f"{name} cannot hold the segments . and .."
    if "#" in path or not path.isprintable():
        yield f"{name} cannot hold # (write %23) and control characters"


def below(base: httpx.URL, path: str, query: Iterable[tuple[str, str]] = ()) -> httpx.URL:
    """The URL of a path below the base, whose last character is a slash. A query inside the path stays.

    What cannot stand in a URL as it is (blanks, letters beyond ASCII) is percent-encoded as UTF-8; a ``%`` is left alone.
    """
    own, _, inside = path.partition("?")
    text = "&".join(part for part in (quote(inside, safe=f"{_LEGAL}?"), urlencode(list(query))) if part)
    target = f"{quote(own.removeprefix('/'), safe=_LEGAL)}{f'?{text}' if text else ''}"
    return base.copy_with(raw_path=base.raw_path + target.encode())
