"""A model of a hostile server: whatever it does, a read gives every record exactly once, or a clear error; never a gap."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from http_server import Api, Asked, Reply
from http_support import ID, SECRET, CountingGate, batches, dataset, partition, source
from pz.errors import Code, ConnectorError, PermanentError, TransientError

ATTEMPTS = 3

FAULTS: dict[str, Reply] = {
    "cut before": Reply(cut=-1),
    "reset": Reply(cut=-1, reset=True),
    "429, past": Reply(429, {"Retry-After": "-3"}, SECRET.encode()),
    "429, far date": Reply(
        429, {"Retry-After": "Fri, 31 Dec 9999 23:59:59 GMT", "Date": "Thu, 01 Jan 1970 00:00:00 GMT"}
    ),
    "429, garbage": Reply(429, {"Retry-After": "9" * 400}),
    "503, skewed clock": Reply(
        503, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT", "Date": "Wed, 21 Oct 2037 07:28:00 GMT"}
    ),
    "502": Reply(502, body=f"<html>token={SECRET}</html>".encode()),
    "500": Reply(500),
    "408": Reply(408),
}
REFUSALS: dict[str, Reply] = {
    "401": Reply.json({"error": f"bad token {SECRET}"}, 401),
    "404": Reply(404),
    "302 elsewhere": Reply(302, {"Location": "http://elsewhere.example.com/x"}),
    "login page": Reply.text(f"<html>{SECRET}</html>", "text/html"),
    "not json": Reply(200, {"Content-Type": "application/json"}, b'{"items": [}'),
    "other shape": Reply.json({"data": []}),
    "a value": Reply.json({"items": [{"id": SECRET}], "total": 1, "pages": 1, "more": False}),
    "no records": Reply.json({"items": [1, 2], "total": 1, "pages": 1, "more": False}),
}
LIES = ("repeat", "skip", "empty", "shrink", "duplicate", "swap", "shuffle", "more forever", "no flag", "same cursor")


@dataclass
class Script:
    """What the server does. ``lies`` and ``faults`` go by page, from 1."""

    records: int
    size: int
    strategy: str
    lies: dict[int, str] = field(default_factory=dict)
    faults: dict[int, list[str]] = field(default_factory=dict)
    refusals: dict[int, str] = field(default_factory=dict)
    framing: str = "length"
    packed: bool = False
    cut: int | None = None

    @property
    def pages(self) -> int:
        return max(1, -(-self.records // self.size))


class Hostile:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.waiting = {page: list(faults) for page, faults in script.faults.items()}
        self.cut = script.cut

    def answer(self, asked: Asked) -> Reply:
        script = self.script
        number = (
            asked.query.get("page")
            or asked.query.get("cursor")
            or str(int(asked.query.get("at", 0)) // script.size + 1)
        )
        page = int(number)
        if self.waiting.get(page):
            return FAULTS[self.waiting[page].pop(0)]
        if page in script.refusals:
            return REFUSALS[script.refusals[page]]
        reply = replace(Reply.json(self.content(page)), framing=script.framing)
        reply = reply.gzipped() if script.packed else reply
        if self.cut is not None and page == 1:
            reply, self.cut = replace(reply, cut=min(self.cut, len(reply.body) - 1)), None
        return reply

    def content(self, page: int) -> dict[str, Any]:
        script, lie = self.script, self.script.lies.get(page, "")
        shown = {"repeat": page - 1, "skip": page + 1}.get(lie, page)
        ids = list(range(script.records))[(shown - 1) * script.size : shown * script.size] if shown > 0 else []
        if lie == "empty":
            ids = []
        if lie == "duplicate" and page > 1:
            ids = [0, *ids]
        if lie == "swap" and page > 1 and ids:
            ids = [0, *ids[1:]]
        if lie == "shuffle":
            ids = ids[::-1]
        body: dict[str, Any] = {
            "items": [{"id": n} for n in ids],
            "total": max(0, script.records - (lie == "shrink")),
            "pages": script.pages,
            "more": page < script.pages or lie == "more forever",
        }
        if body["more"]:
            body["next"] = str(page if lie == "same cursor" else page + 1)
        if lie == "no flag":
            del body["more"]
        return body


PAGINGS: dict[str, dict[str, Any]] = {
    "page": {"strategy": "page", "param": "page", "total_pointer": "/total"},
    "pages": {"strategy": "page", "param": "page", "total_pages_pointer": "/pages", "total_pointer": "/total"},
    "offset": {"strategy": "offset", "param": "at", "total_pointer": "/total"},
    "cursor": {
        "strategy": "cursor",
        "param": "cursor",
        "pointer": "/next",
        "more_pointer": "/more",
        "total_pointer": "/total",
    },
}


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    script = Script(draw(st.integers(0, 17)), draw(st.integers(1, 6)), draw(st.sampled_from(sorted(PAGINGS))))
    numbers = st.integers(1, script.pages + 1)
    script.lies = draw(st.dictionaries(numbers, st.sampled_from(LIES), max_size=2))
    script.faults = draw(
        st.dictionaries(numbers, st.lists(st.sampled_from(sorted(FAULTS)), min_size=1, max_size=3), max_size=2)
    )
    if draw(st.integers(0, 4)) == 0:
        script.refusals = {draw(numbers): draw(st.sampled_from(sorted(REFUSALS)))}
    script.framing = draw(st.sampled_from(["length", "chunked", "close"]))
    script.packed = draw(st.booleans())
    script.cut = draw(st.none() | st.integers(0, 400))
    return script


def crawl(api: Api, script: Script) -> list[int]:
    """The ids that were read, resuming from the last token after each failure that may pass."""
    paging = dict(PAGINGS[script.strategy])
    if script.strategy == "offset":
        paging["size"] = script.size
    options = {"items": "/items", "pagination": paging, "unique": "/id"}
    opened = source(api, CountingGate(ATTEMPTS), auth={"type": "bearer", "token": SECRET})
    try:
        return [row["id"] for batch in batches(partition(opened, dataset(options, ID))) for row in batch.to_pylist()]
    finally:
        opened.close()


@pytest.mark.parametrize("strategy", sorted(PAGINGS))
@pytest.mark.parametrize("lie", LIES)
def test_a_single_lie_on_any_page_is_seen_or_harmless(lie: str, strategy: str) -> None:
    outcomes = set()
    for page in (1, 2, 3, 4):
        script = Script(14, 4, strategy, {page: lie})
        with Api() as api:
            api.route("GET", "/items", Hostile(script).answer)
            outcomes.add(_outcome(api, script))
    assert outcomes <= {"whole", Code.PZ0764}
    assert lie in {"shuffle", "more forever", "no flag", "same cursor"} or Code.PZ0764 in outcomes


def _outcome(api: Api, script: Script) -> str | None:
    """``whole`` for every record exactly once, else the code of the error."""
    try:
        found = crawl(api, script)
    except PermanentError as failure:
        return failure.code
    return "whole" if Counter(found) == Counter(range(script.records)) else f"a gap: {found}"


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_fault_is_met_by_asking_again_until_the_attempts_are_used_up(fault: str) -> None:
    for times in (1, 2, 3):
        script = Script(14, 4, "page", faults={2: [fault] * times})
        with Api() as api:
            api.route("GET", "/items", Hostile(script).answer)
            if times < ATTEMPTS:
                assert crawl(api, script) == list(range(14))
            else:
                with pytest.raises(TransientError) as caught:
                    crawl(api, script)
                assert SECRET not in caught.value.message


@pytest.mark.parametrize("refusal", sorted(REFUSALS))
def test_a_refusal_on_any_page_is_an_error_without_secrets(refusal: str) -> None:
    for page in (1, 2, 4):
        script = Script(14, 4, "page", refusals={page: refusal})
        with Api() as api:
            api.route("GET", "/items", Hostile(script).answer)
            with pytest.raises(PermanentError) as caught:
                crawl(api, script)
            assert SECRET not in f"{caught.value.message} {caught.value.hint}"


@dataclass
class Capping:
    """An API that gives at most ``cap`` records whatever it is asked for. ``told`` is what else it says."""

    records: int
    cap: int
    asked: int
    strategy: str
    counts: str = "given"
    """Whether a page number counts pages of the size that is ``given``, or of the size that was ``asked`` for."""
    beyond: str = "empty"
    """Behind the last record: an ``empty`` page, the last page once more (``repeat``), or an error (``refuse``)."""
    told: str = "nothing"
    unique: bool = False
    ends_short: bool = False
    sizes: tuple[int, ...] = ()
    """The only sizes that may be asked for; any where there are none."""

    def answer(self, asked: Asked) -> Reply:
        if self.sizes and int(asked.query["n"]) not in self.sizes:
            return Reply.json({"error": "size"}, 422)
        size = min(self.cap, int(asked.query["n"]))
        if self.strategy == "offset":
            at = int(asked.query["at"])
        else:
            at = (int(asked.query["page"]) - 1) * (size if self.counts == "given" else int(asked.query["n"]))
        if at >= self.records and at > 0:
            if self.beyond == "refuse":
                return Reply.json({"error": "no such page"}, 404)
            if self.beyond == "repeat":
                at = max(0, self.records - 1) // size * size
        items = [{"id": n} for n in range(self.records)[at : at + size]]
        body = {"items": items, "total": self.records, "pages": max(1, -(-self.records // size))}
        return Reply.json({**body, "more": at + size < self.records})

    def options(self) -> dict[str, Any]:
        paging: dict[str, Any] = {"strategy": self.strategy, "size_param": "n", "size": self.asked}
        paging["param"] = "at" if self.strategy == "offset" else "page"
        if self.told != "nothing":
            paging[{"total": "total_pointer", "pages": "total_pages_pointer", "more": "more_pointer"}[self.told]] = (
                f"/{self.told}"
            )
        if self.ends_short:
            paging["stop_on_short_page"] = True
        return {"items": "/items", "pagination": paging, **({"unique": "/id"} if self.unique else {})}

    @property
    def keeps_to_size(self) -> bool:
        return self.asked <= self.cap

    @property
    def plain(self) -> bool:
        """Whether nothing about it is odd: what it is asked for is what it gives, and its ends are empty or declared."""
        tells_the_end = self.told != "nothing" or (self.ends_short and self.records % self.asked > 0)
        return self.keeps_to_size and (self.beyond == "empty" or tells_the_end)


@st.composite
def capping(draw: st.DrawFn) -> Capping:
    cap = draw(st.integers(1, 6))
    return Capping(
        draw(st.integers(0, 17)),
        cap,
        draw(st.integers(1, 9)),
        draw(st.sampled_from(["page", "offset"])),
        draw(st.sampled_from(["given", "asked"])),
        draw(st.sampled_from(["empty", "repeat", "refuse"])),
        draw(st.sampled_from(["nothing", "total", "pages", "more"])),
        draw(st.booleans()),
        draw(st.booleans()),
    )


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(
    api=Capping(7, 3, 4, "page", "asked", "repeat", "total")
)  # as many repeated as stepped over: the total is kept
@given(api=capping())
def test_an_api_that_gives_less_than_it_is_asked_for_loses_no_record(api: Capping) -> None:
    """What an API tells that counts pages by another size than it gives is a lie; a short page is none."""
    lies = api.strategy == "page" and api.counts == "asked" and not api.keeps_to_size and api.told in {"pages", "more"}
    assume(not lies)
    found = _capped(api)
    if found != list(range(api.records)):
        assert found in {Code.PZ0764, Code.PZ0761}, api
        assert not api.plain, api


def _capped(server: Capping) -> object:
    """The ids that were read, else the code of the error."""
    with Api() as api:
        api.route("GET", "/items", server.answer)
        opened = source(api, CountingGate(ATTEMPTS))
        try:
            read = batches(partition(opened, dataset(server.options(), ID)))
            return [row["id"] for batch in read for row in batch.to_pylist()]
        except PermanentError as failure:
            return failure.code
        finally:
            opened.close()


@pytest.mark.parametrize("beyond", ["empty", "repeat", "refuse"])
@pytest.mark.parametrize("ends_short", [False, True])
@pytest.mark.parametrize(
    ("strategy", "counts"), [("offset", "given"), ("page", "given"), ("page", "asked")], ids=["offset", "page", "late"]
)
def test_eighty_records_in_pages_of_fifty_asked_for_by_the_hundred_never_become_fifty(
    strategy: str, counts: str, ends_short: bool, beyond: str
) -> None:
    """Before, an empty page at offset 100 was taken for the end, and so were a second page of a hundred and a short one."""
    server = Capping(80, 50, 100, strategy, counts, beyond, ends_short=ends_short)
    assert _capped(server) == Code.PZ0764
    assert _capped(replace(server, told="total")) in (list(range(80)), Code.PZ0764, Code.PZ0761)
    if strategy == "offset" and not ends_short:
        assert _capped(replace(server, told="total")) == list(range(80))
        assert _capped(replace(server, unique=True, beyond="empty")) == list(range(80))
    assert _capped(replace(server, asked=50, beyond="empty")) == list(range(80))


@pytest.mark.parametrize("strategy", ["offset", "page"])
@pytest.mark.parametrize("beyond", ["empty", "repeat", "refuse"])
def test_a_first_page_that_is_short_because_that_is_all_is_the_last(beyond: str, strategy: str) -> None:
    server = Capping(30, 50, 50, strategy, "asked", beyond, ends_short=True)
    assert _capped(server) == list(range(30))
    assert _capped(replace(server, told="total")) == list(range(30))
    assert _capped(replace(server, beyond="empty", ends_short=False)) == list(range(30))
    assert _capped(replace(server, beyond="empty", ends_short=False, sizes=(10, 50))) == list(range(30))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script=scripts())
def test_every_record_exactly_once_or_a_clear_error(script: Script) -> None:
    with Api() as api:
        api.route("GET", "/items", Hostile(script).answer)
        try:
            found = crawl(api, script)
        except ConnectorError as failure:
            _judge_error(script, failure)
            return
        assert Counter(found) == Counter(range(script.records)), json.dumps(script.__dict__)


def _judge_error(script: Script, failure: ConnectorError) -> None:
    assert SECRET not in f"{failure.message} {failure.hint}"
    assert failure.code is not None
    assert failure.code.startswith("PZ07")
    honest = not script.lies and not script.refusals
    patient = all(
        len(faults) + (page == 1 and script.cut is not None) < ATTEMPTS for page, faults in script.faults.items()
    )
    swallowed = script.framing == "close" and script.cut == 0
    if honest and patient and not swallowed:
        raise AssertionError(f"an honest server was refused: {failure.message}; {script}")
    if isinstance(failure, TransientError):
        assert not patient or script.cut is not None
    else:
        assert isinstance(failure, PermanentError)
        assert failure.code in set(Code)
