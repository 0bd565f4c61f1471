"""From one page to the next, and when there is none: six strategies, and the guards that all of them share.

An end is believed only where the API said so. Whatever would end a crawl early in silence (a missing flag, a total that is
not reached, a page that comes again) is an error instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, field, replace
from enum import StrEnum
from typing import Any, Protocol

from pz.errors import Code, PermanentError
from pz.frozen import frozen

__all__ = ["MISSING", "PAGINATION_SCHEMA", "Page", "Paging", "Position", "Strategy", "next_link", "paging_faults"]

_DIGEST = re.compile("[0-9a-f]{32}")
CEILING = 50_000
"""Pages of a crawl without ``max_pages``; more is taken for a crawl that does not end."""

MISSING = object()
"""What a pointer gives that leads nowhere."""


class Strategy(StrEnum):
    """How the next page is found."""

    NONE = "none"
    LINK_HEADER = "link_header"
    PAGE = "page"
    OFFSET = "offset"
    CURSOR = "cursor"
    NEXT_URL = "next_url"


_TEXT = {"type": "string", "minLength": 1}
_POINTER = {"type": "string", "pattern": "^/"}

PAGINATION_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["strategy"],
    "description": "How further pages are found (default none).",
    "examples": [
        {"strategy": "link_header"},
        {"strategy": "page", "param": "page", "size_param": "per_page", "size": 100},
        {"strategy": "offset", "param": "offset", "size_param": "limit", "size": 100, "total_pointer": "/total"},
        {"strategy": "cursor", "pointer": "/next_cursor", "param": "cursor"},
        {"strategy": "next_url", "pointer": "/@odata.nextLink"},
    ],
    "properties": {
        "strategy": {"enum": [str(kind) for kind in Strategy], "description": "How the next page is asked for."},
        "param": {**_TEXT, "description": "page, offset, cursor: the parameter that names the page."},
        "in": {"enum": ["query", "body"], "description": "Where the parameters go (default query; body needs POST)."},
        "start": {"type": "integer", "minimum": 0, "description": "page: first number (default 1). offset: default 0."},
        "size_param": {**_TEXT, "description": "The parameter that asks for a page size."},
        "size": {"type": "integer", "minimum": 1, "description": "The page size to ask for."},
        "rel": {**_TEXT, "description": "link_header: the relation (default next)."},
        "pointer": {**_POINTER, "description": "cursor, next_url: where the body holds it."},
        "header": {**_TEXT, "description": "cursor: the response header that holds it, instead of pointer."},
        "last_record_pointer": {**_POINTER, "description": "cursor: it is this value of the page's last record."},
        "total_pointer": {**_POINTER, "description": "Where the body tells how many records there are in all."},
        "total_header": {**_TEXT, "description": "Or the response header that does."},
        "total_pages_pointer": {**_POINTER, "description": "Where the body tells how many pages there are."},
        "more_pointer": {**_POINTER, "description": "Where the body says true or false: whether there is a next page."},
        "count_pointer": {
            **_POINTER,
            "description": "The array whose length is the page's, where items selects deeper.",
        },
        "stop_on_short_page": {
            "type": "boolean",
            "description": "page, offset: a page of fewer than size records is the last (default false: an empty one is). "
            "Behind a first page that is short already, one request looks whether the API gives less than size.",
        },
        "allow_short_pages": {
            "type": "boolean",
            "description": "page, offset: pages of fewer than size records may come before the last, because the API filters "
            "what it has cut (default false: refused where nothing proves that no record is left out).",
        },
    },
}

_NEEDED: Mapping[Strategy, frozenset[str]] = {
    Strategy.NONE: frozenset(),
    Strategy.LINK_HEADER: frozenset(),
    Strategy.PAGE: frozenset({"param"}),
    Strategy.OFFSET: frozenset({"param", "size"}),
    Strategy.CURSOR: frozenset({"param"}),
    Strategy.NEXT_URL: frozenset({"pointer"}),
}
_SIZED = frozenset({"size_param", "size", "in"})
_TOLD = frozenset({"more_pointer", "total_pointer", "total_header", "count_pointer"})
_COUNTED = frozenset({"start", "stop_on_short_page", "allow_short_pages", "total_pages_pointer"})
_FURTHER: Mapping[Strategy, frozenset[str]] = {
    Strategy.NONE: frozenset(),
    Strategy.LINK_HEADER: _SIZED | _TOLD | {"rel"},
    Strategy.PAGE: _SIZED | _TOLD | _COUNTED,
    Strategy.OFFSET: _SIZED | _TOLD | _COUNTED,
    Strategy.CURSOR: _SIZED | _TOLD | {"pointer", "header", "last_record_pointer"},
    Strategy.NEXT_URL: _SIZED | _TOLD,
}


def paging_faults(options: Mapping[str, Any]) -> Iterator[str]:
    """Faults of a dataset's ``pagination`` that a schema does not see; offline."""
    block = options.get("pagination")
    if not isinstance(block, Mapping) or block.get("strategy") not in set(Strategy):
        return
    kind, given = Strategy(block["strategy"]), set(block) - {"strategy"}
    yield from (f"pagination: {kind} needs {name}" for name in sorted(_NEEDED[kind] - given))
    foreign = given - _NEEDED[kind] - _FURTHER[kind]
    yield from (f"pagination: {kind} has no {name}" for name in sorted(foreign))
    sources = given & {"pointer", "header", "last_record_pointer"}
    if kind is Strategy.CURSOR and len(sources) != 1:
        yield "pagination: cursor needs exactly one of pointer, header and last_record_pointer"
    if "last_record_pointer" in given and "more_pointer" not in given:
        yield "pagination: last_record_pointer needs more_pointer; without it nothing tells the end"
    if kind is not Strategy.OFFSET and "size_param" in given and "size" not in given:
        yield "pagination: size_param needs size"
    if (
        kind is not Strategy.OFFSET
        and "size" in given
        and "size_param" not in given
        and "stop_on_short_page" not in given
    ):
        yield "pagination: size needs size_param"
    yield from (
        f"pagination: {name} needs size"
        for name in ("allow_short_pages", "stop_on_short_page")
        if name in given and "size" not in given
    )
    if {"allow_short_pages", "stop_on_short_page"} <= {name for name in given if block[name] is True}:
        yield "pagination: allow_short_pages and stop_on_short_page exclude each other"
    if {"total_pointer", "total_header"} <= given:
        yield "pagination: total_pointer and total_header exclude each other"
    yield from _around(kind, block, options)


def _around(kind: Strategy, block: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[str]:
    """Faults that other options of the dataset make."""
    if block.get("in") == "body" and not isinstance(options.get("body"), Mapping):
        yield "pagination: in: body needs method: POST and a mapping as body"
    if options.get("format", "json") != "json" and any(name.endswith("pointer") for name in block):
        yield "pagination: pointers need format: json"
    if options.get("method") == "POST" and kind in {Strategy.LINK_HEADER, Strategy.NEXT_URL}:
        yield f"pagination: {kind} follows URLs by GET; it does not go with method: POST"
    deep = str(options.get("items", "")).startswith("$")
    told = {"more_pointer", "total_pages_pointer", "count_pointer"} & set(block)
    if deep and kind in {Strategy.PAGE, Strategy.OFFSET} and not told:
        yield (
            "pagination: with a JSONPath in items nothing tells an empty page; give count_pointer, more_pointer or "
            "total_pages_pointer"
        )
    elif (
        deep and kind is Strategy.OFFSET and "count_pointer" not in block and block.get("allow_short_pages") is not True
    ):
        yield (
            "pagination: offset with a JSONPath in items needs count_pointer; without it nothing tells that a page has "
            "fewer entries than size (allow_short_pages: true takes it as it is)"
        )


class Page(Protocol):
    """What the strategies ask of a page."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The response's headers, in lower case."""

    def at(self, pointer: str) -> Any:
        """The value in the body, MISSING when there is none."""

    @property
    def count(self) -> int:
        """How many records the page has, before anything is filtered."""

    def last_at(self, pointer: str) -> Any:
        """The value in the last record; MISSING when there is none."""


@frozen
class Position:
    """Where a crawl stands before a page: its index, the server's URL or the parameter's value, and what was counted.

    ``seen`` are records so far, ``total`` the largest total that was told, ``last`` tells the records of the page before.
    ``short`` says that the page before had fewer records than ``size``. ``doubted`` says that this page is asked for because
    the first one was short, and nothing tells whether the API ever gives as many; ``asks`` is then the size to ask for.
    """

    index: int = 0
    url: str | None = None
    value: str | None = None
    seen: int = 0
    total: int | None = None
    last: str | None = None
    short: bool = False
    doubted: bool = False
    asks: int | None = None

    def to_token(self) -> str:
        """The position as text."""
        return json.dumps({"v": 1, **asdict(self)}, sort_keys=True)

    @classmethod
    def from_token(cls, token: str) -> Position | None:
        """What `to_token` gave; None for anything else."""
        try:
            told = json.loads(token)
            if not isinstance(told, dict) or told.pop("v") != 1:
                return None
            found = cls(**told)
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        numbers = isinstance(found.index, int) and isinstance(found.seen, int) and found.index >= 0
        numbers = numbers and isinstance(found.short, bool) and isinstance(found.doubted, bool)
        numbers = numbers and isinstance(found.asks, int | None)
        texts = all(isinstance(text, str | None) for text in (found.url, found.value, found.last))
        if not (numbers and texts and isinstance(found.total, int | None)):
            return None
        return found if found.last is None or _DIGEST.fullmatch(found.last) else None


@frozen(slots=False)
class Paging:
    """A dataset's ``pagination`` without faults."""

    strategy: Strategy = Strategy.NONE
    options: Mapping[str, Any] = field(default_factory=dict)
    counts_pages: bool = True
    """Whether a page's records are what its size is about; not where a JSONPath takes them from deeper down."""
    unique: bool = False
    """Whether a record that comes twice would be seen."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Paging:
        """From the options of a dataset; without ``pagination`` there is one page."""
        block = options.get("pagination")
        if block is None:
            return cls()
        deep = str(options.get("items", "")).startswith("$")
        return cls(Strategy(block["strategy"]), block, not deep or "count_pointer" in block, "unique" in options)

    @property
    def in_body(self) -> bool:
        """Whether the parameters travel in the body of a POST."""
        return self.options.get("in") == "body"

    def first(self) -> Position:
        """Before the first page."""
        if self.strategy is Strategy.PAGE:
            return Position(value=str(self.options.get("start", 1)))
        if self.strategy is Strategy.OFFSET:
            return Position(value=str(self.options.get("start", 0)))
        return Position()

    def parameters(self, position: Position) -> dict[str, str | int]:
        """What is added to the query or the body for this page; nothing where a URL of the server says it all."""
        if position.url is not None:
            return {}
        found: dict[str, str | int] = {}
        if "size_param" in self.options:
            found[str(self.options["size_param"])] = (
                int(self.options["size"]) if position.asks is None else position.asks
            )
        if position.value is not None:
            number = self.strategy in {Strategy.PAGE, Strategy.OFFSET}
            found[str(self.options["param"])] = int(position.value) if number else position.value
        return found

    def after(self, position: Position, page: Page, subject: str) -> Position | None:
        """The position behind a page; None at the end. Raises PermanentError PZ0764 where the end cannot be believed."""
        total = self._total(position, page, subject)
        here = replace(
            position,
            index=position.index + 1,
            seen=position.seen + page.count,
            total=total,
            short=self._is_short(page),
            doubted=False,
            asks=None,
        )
        found = self._next(here, position, page, subject)
        if found is None and total is not None and here.seen != total:
            raise _not_believed(
                subject, f"the crawl ended with {here.seen} records, but the API told of {total}", _MOVING
            )
        return found

    # --- the strategies

    def _next(self, here: Position, before: Position, page: Page, subject: str) -> Position | None:
        more = self._more(page, subject)
        if more is False or self.strategy is Strategy.NONE:
            return None
        if self.strategy in {Strategy.PAGE, Strategy.OFFSET}:
            return self._counted(here, before, page, more, subject)
        found = self._told(page, subject)
        if found is None:
            if more:
                raise _not_believed(subject, "the API says that there is a next page, but not where")
            return None
        if self.strategy is Strategy.CURSOR:
            return replace(here, value=found, url=None)
        return replace(here, url=found, value=None)

    def _counted(
        self, here: Position, before: Position, page: Page, more: bool | None, subject: str
    ) -> Position | None:
        if page.count:
            self._check_follows(here, before, page, subject)
        pages = self._number(page, "total_pages_pointer", subject)
        told = pages is not None or more is not None or here.total is not None
        if pages is not None:
            if here.index >= pages:
                return None
        elif here.total is not None and here.seen >= here.total:
            return None
        elif more is None:
            stops = here.short and self._is("stop_on_short_page") and (told or before.index > 0)
            if stops or page.count == 0:
                return None
        if page.count == 0 and (pages is not None or more):
            raise _not_believed(subject, "a page is empty, but the API says that more pages follow")
        return self._behind(here, before, page, told=told)

    def _behind(self, here: Position, before: Position, page: Page, *, told: bool) -> Position:
        """The next page. Behind a first one that is short it is the one that an API which gives less than ``size`` has."""
        assert before.value is not None
        by_page, short = self.strategy is Strategy.PAGE, here.short and not self._is("allow_short_pages")
        step = 1 if by_page else page.count if short else int(self.options["size"])
        following = replace(here, value=str(int(before.value) + step))
        if not short or told or before.index > 0:
            return following
        # An API that cuts less than it is asked for, but counts pages by what it is asked for, has an empty second page.
        # The same records in pages of the number that came have one only where the first page was all.
        resized = by_page and "size_param" in self.options and int(self.options.get("start", 1)) <= 1
        doubted = resized or self._is("stop_on_short_page")
        return replace(following, doubted=doubted, asks=page.count if resized else None)

    def undoubted(self, position: Position) -> Position | None:
        """Where a crawl goes on when the API refuses a page that was asked for out of doubt; None is the end."""
        return None if self.stops_at(position) else replace(position, asks=None, doubted=False)

    def stops_at(self, position: Position) -> bool:
        """Whether a page that repeats the one before it, or is refused, is as good as an empty one."""
        return position.doubted and self._is("stop_on_short_page")

    def may_begin(self, position: Position) -> bool:
        """Whether a crawl can begin at a position of an earlier attempt and still prove what it proves."""
        if self.strategy not in {Strategy.PAGE, Strategy.OFFSET}:
            return self.strategy is Strategy.CURSOR and position.value is not None
        if position.value is None or not (position.value.isascii() and position.value.isdigit()):
            return False
        if not self.counts_pages or self._is("allow_short_pages"):
            return True
        by_offset = self.strategy is Strategy.OFFSET
        if by_offset and int(position.value) - int(self.options.get("start", 0)) != position.seen:
            return False
        # The records before it are not known any more, so that one that comes again would not be seen.
        return not (position.short and self.unique) or (by_offset and position.total is not None)

    def _check_follows(self, here: Position, before: Position, page: Page, subject: str) -> None:
        """Raise where a page with records makes it unproven that none was stepped over, and none came twice."""
        by_offset, size = self.strategy is Strategy.OFFSET, int(self.options.get("size", 0))
        if by_offset and self.counts_pages and page.count > size:
            raise _not_believed(
                subject,
                f"a page has {page.count} records and size is {size}, so the next one would repeat some",
                "set size_param, or size to what the API gives",
            )
        if not before.short or self._is("allow_short_pages"):
            return
        stops = self._is("stop_on_short_page")
        # Offsets go by what came, so that records can only repeat, which each of the two would show. Page numbers may do
        # both, step over some and repeat as many, which neither shows alone.
        proofs = (here.total is not None, self.unique)
        if not stops and (any(proofs) if by_offset else all(proofs)):
            return
        tells = f"a total (total_pointer, total_header) {'or' if by_offset else 'and'} unique"
        raise _not_believed(
            subject,
            f"more records follow a page that has fewer than size ({size}), so some may have been stepped over"
            + (", and stop_on_short_page would end before them" if stops else ""),
            f"set size to what the API gives at most, or declare {tells}, which prove it; allow_short_pages: true where it "
            "filters its pages; run again if records were added while they were read",
        )

    def _is(self, option: str) -> bool:
        return self.options.get(option) is True

    def _is_short(self, page: Page) -> bool:
        return self.counts_pages and 0 < page.count < int(self.options.get("size", 0))

    def _told(self, page: Page, subject: str) -> str | None:
        """The cursor or URL that the page tells; None for missing, null and empty."""
        if self.strategy is Strategy.LINK_HEADER:
            try:
                return next_link(page.headers.get("link", ""), str(self.options.get("rel", "next")))
            except ValueError as error:
                raise _not_believed(subject, "the Link header cannot be read, so it does not tell the end") from error
        if "header" in self.options:
            return page.headers.get(str(self.options["header"]).lower()) or None
        if "last_record_pointer" in self.options:
            found = page.last_at(str(self.options["last_record_pointer"]))
        else:
            found = page.at(str(self.options["pointer"]))
        if found is MISSING or found is None or found == "":
            return None
        if isinstance(found, bool) or not isinstance(found, str | int):
            raise _not_believed(subject, "what should lead to the next page is neither text nor a whole number")
        return str(found)

    # --- what the page tells about the end

    def _more(self, page: Page, subject: str) -> bool | None:
        """The flag; None when no flag is declared."""
        if "more_pointer" not in self.options:
            return None
        found = page.at(str(self.options["more_pointer"]))
        if not isinstance(found, bool):
            what = "is missing" if found is MISSING else "is neither true nor false"
            raise _not_believed(subject, f"the flag at more_pointer {what}")
        return found

    def _total(self, position: Position, page: Page, subject: str) -> int | None:
        """The total that holds from here on. It may grow while we read; a shrinking one means that records moved."""
        told = self._number(page, "total_pointer", subject)
        if "total_header" in self.options:
            told = _whole(page.headers.get(str(self.options["total_header"]).lower(), MISSING))
            if told is None:
                raise _not_believed(subject, "the total in total_header is missing or no number")
        if told is not None and position.total is not None and told < position.total:
            raise _not_believed(subject, f"the total went from {position.total} to {told} during the crawl", _MOVING)
        return told if told is not None else position.total

    def _number(self, page: Page, name: str, subject: str) -> int | None:
        if name not in self.options:
            return None
        found = _whole(page.at(str(self.options[name])))
        if found is None:
            raise _not_believed(subject, f"the number at {name} is missing or no whole number")
        return found


_MOVING = "records were removed or added while the pages were read; page by a cursor that does not move, or run again"


def _not_believed(subject: str, what: str, hint: str | None = None) -> PermanentError:
    return PermanentError(f"{subject}: {what}", code=Code.PZ0764, hint=hint)


def _whole(found: object) -> int | None:
    if isinstance(found, bool) or found is MISSING:
        return None
    if isinstance(found, int):
        return found if found >= 0 else None
    return int(found) if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) < 19 else None


_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_PARAMETER = rf"({_TOKEN})(?:\s*+=\s*+(\"(?:[^\"\\]|\\.)*+\"|[^\s;,\"]*+))?"
_PARAMETERS = re.compile(rf"\s*+;\s*+(?:{_PARAMETER})?")
# Elements of a list may be empty (RFC 9110, 5.6.1.2).
_LINK = re.compile(rf"[\s,]*+<([^>]*+)>((?:\s*+;\s*+(?:{_PARAMETER})?)*+)\s*+(?:,|\Z)")


def next_link(header: str, rel: str = "next") -> str | None:
    """The target of the first link (RFC 8288) whose relations hold ``rel``; None when there is none.

    Raises ValueError for a header that cannot be read, and for such a link without a target: that is no sign of an end.
    """
    links, at = header.strip(", \t"), 0
    while at < len(links):
        found = _LINK.match(links, at)
        if found is None:
            raise ValueError("no list of links")
        for name, value in _PARAMETERS.findall(found.group(2)):
            if name.lower() == "rel" and rel.lower() in value.strip("\"'").lower().split():
                if not found.group(1).strip():
                    raise ValueError("a link without a target")
                return found.group(1).strip()
        at = found.end()
    return None
