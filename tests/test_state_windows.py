"""Slices: both ends fixed before reading, tiling what there is, never passing what is still to come."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pz.connectors.contract import Bound
from pz.cursors import CursorType, compare
from pz.errors import Code, StateError
from pz.graph.model import NodeKind, SourceNode
from pz.project.model import ReadDecl, SyncDecl, SyncMode
from pz.state.entries import Watermark
from pz.state.windows import SliceBounds, candidate, declared_cursor_type, resolve_slice, resolve_sql_slice

T = CursorType
NOON = datetime(2026, 7, 10, 12, 0, 0, tzinfo=UTC)


def node(type_: CursorType | None = T.INT, **sync: str) -> SourceNode:
    return SourceNode(
        id="n",
        kind=NodeKind.SOURCE_LOAD,
        name="crm.orders",
        connection="crm",
        entity="orders",
        relation="r",
        read=ReadDecl(
            columns=None if type_ is None else {"c": type_.value},
            sync=SyncDecl(mode=SyncMode.INCREMENTAL, cursor="c", **sync),  # type: ignore[arg-type]
        ),
    )


def resolve(
    n: SourceNode,
    stored: str | None,
    probe: str | None,
    *,
    merge: bool = True,
    refresh: bool = False,
    now: datetime = NOON,
) -> SliceBounds:
    type_ = declared_cursor_type(n) or T.INT
    return resolve_slice(
        n,
        None if stored is None else Watermark("c", type_, stored),
        run_started_at=now,
        probe_upper=probe,
        all_sinks_merge=merge,
        full_refresh=refresh,
    )


def ends(bounds: SliceBounds) -> tuple[Bound | None, Bound | None]:
    return bounds.lower, bounds.upper


def incl(value: str) -> Bound:
    return Bound(value, inclusive=True)


def excl(value: str) -> Bound:
    return Bound(value, inclusive=False)


def test_without_a_window_the_upper_end_is_the_highest_value_there_is_now() -> None:
    assert ends(resolve(node(), None, "50")) == (None, incl("50"))
    assert ends(resolve(node(), "10", "50")) == (incl("10"), incl("50"))
    assert ends(resolve(node(), "10", None)) == (incl("10"), None)


def test_the_floor_is_strict_when_some_output_does_not_merge_or_the_project_asks_for_it() -> None:
    assert ends(resolve(node(), "10", "50", merge=False))[0] == excl("10")
    assert ends(resolve(node(boundary="exclusive"), "10", "50"))[0] == excl("10")


def test_a_full_refresh_reads_from_the_start_and_a_window_from_initial() -> None:
    assert ends(resolve(node(), "10", "50", refresh=True)) == (None, incl("50"))
    windowed = node(initial="0", max_window="20")
    assert ends(resolve(windowed, "30", "50", refresh=True)) == (excl("0"), incl("20"))


def test_a_window_starts_after_initial_continues_from_the_stored_value_and_stops_at_until() -> None:
    windowed = node(initial="0", max_window="20", until="50")
    assert ends(resolve(windowed, None, "1000")) == (excl("0"), incl("20"))
    assert ends(resolve(windowed, "20", "1000")) == (incl("20"), incl("40"))
    assert ends(resolve(windowed, "40", "1000")) == (incl("40"), incl("50"))
    done = resolve(windowed, "50", "1000")
    assert (done.caught_up, done.has_stop) == (True, True)
    assert candidate(done, "50", T.INT) is None


def test_an_until_below_the_stored_value_never_moves_it_back() -> None:
    bounds = resolve(node(initial="0", max_window="20", until="50"), "80", "1000")
    assert bounds.caught_up
    assert candidate(bounds, "50", T.INT) is None


def test_an_empty_window_still_moves_to_its_end_but_an_empty_unbounded_read_stands() -> None:
    gap = resolve(node(initial="0", max_window="20"), "20", "1000")
    assert candidate(gap, None, T.INT) == "40"
    assert candidate(gap, "20", T.INT) == "40"  # only the boundary came again
    assert candidate(gap, "33", T.INT) == "33"
    assert candidate(resolve(node(), "20", "20"), None, T.INT) is None
    assert candidate(resolve(node(), "20", "20"), "20", T.INT) is None


def test_without_until_a_number_window_ends_at_the_highest_number_there_is() -> None:
    bounds = resolve(node(initial="0", max_window="20"), "40", "45")
    assert ends(bounds) == (incl("40"), incl("45"))
    assert not bounds.has_stop
    assert resolve(node(initial="0", max_window="20"), "45", "45").caught_up


def test_without_until_a_time_window_ends_at_the_start_of_the_run() -> None:
    windowed = node(T.TIMESTAMP, initial="2026-07-10T00:00:00", max_window="1d")
    bounds = resolve(windowed, None, None)
    assert bounds.upper == incl("2026-07-10T12:00:00.000000")
    assert candidate(bounds, None, T.TIMESTAMP) == "2026-07-10T12:00:00.000000"


def test_until_now_ends_just_before_the_run_and_for_a_date_yesterday() -> None:
    moment = node(T.TIMESTAMP, initial="2026-07-10T00:00:00", max_window="30d", until="now")
    assert resolve(moment, None, "2026-07-10T11:00:00").upper == incl("2026-07-10T11:59:59.999999")
    day = node(T.DATE, initial="2026-07-01", max_window="30d", until="now")
    assert resolve(day, None, "2026-07-10").upper == incl("2026-07-09")
    assert resolve(day, "2026-07-09", "2026-07-10").caught_up


def test_until_now_is_the_start_of_the_run_in_utc() -> None:
    day = node(T.DATE, initial="2026-07-01", max_window="30d", until="now")
    east = datetime.fromisoformat("2026-07-11T01:00:00+14:00")
    assert resolve(day, None, None, now=east).upper == incl("2026-07-09")


def test_until_now_with_a_number_is_refused() -> None:
    with pytest.raises(StateError) as raised:
        resolve(node(initial="0", max_window="5", until="now"), None, None)
    assert raised.value.code is Code.PZ0213


def test_a_date_cursor_reads_the_last_day_again_when_all_outputs_merge() -> None:
    assert ends(resolve(node(T.DATE), "2026-07-10", "2026-07-10")) == (incl("2026-07-10"), incl("2026-07-10"))


def test_a_date_cursor_lets_the_unfinished_day_wait_when_an_output_appends() -> None:
    bounds = resolve(node(T.DATE), "2026-07-08", "2026-07-10", merge=False)
    assert ends(bounds) == (excl("2026-07-08"), incl("2026-07-09"))
    assert candidate(bounds, "2026-07-10", T.DATE) == "2026-07-09"
    windowed = node(T.DATE, initial="2026-07-01", max_window="30d")
    assert resolve(windowed, None, "2026-07-10", merge=False).upper == incl("2026-07-09")
    assert resolve(windowed, "2026-07-09", "2026-07-10", merge=False).caught_up


def test_a_lookback_widens_the_floor_and_never_the_upper_end() -> None:
    bounds = resolve(node(lookback="5"), "20", "50")
    assert ends(bounds) == (incl("15"), incl("50"))
    assert candidate(bounds, "18", T.INT) is None
    windowed = node(initial="0", max_window="20", lookback="50")
    bounds = resolve(windowed, "20", "1000")
    assert ends(bounds) == (excl("0"), incl("40"))
    assert candidate(bounds, "18", T.INT) == "40"
    assert ends(resolve(node(T.TIMESTAMP, lookback="2h"), "2026-07-10T01:00:00.000000", None))[0] == incl(
        "2026-07-09T23:00:00.000000"
    )


def test_an_empty_number_source_moves_nothing() -> None:
    assert candidate(resolve(node(initial="0", max_window="20"), None, None), None, T.INT) is None
    assert candidate(resolve(node(initial="0", max_window="20", until="50"), None, None), None, T.INT) == "20"


def test_a_value_beyond_the_run_is_told() -> None:
    assert resolve(node(T.DATE), None, "20231-01-01").beyond_now
    assert not resolve(node(T.DATE), None, "2026-07-10").beyond_now
    assert not resolve(node(), None, "999999").beyond_now


def test_a_stored_value_of_another_type_is_refused_naming_both() -> None:
    stored = Watermark("c", T.DATE, "2026-07-01")
    with pytest.raises(StateError, match="is int, but its stored watermark is date") as raised:
        resolve_slice(node(), stored, run_started_at=NOON, probe_upper=None, all_sinks_merge=True)
    assert raised.value.code is Code.PZ0505
    resolve_slice(node(), stored, run_started_at=NOON, probe_upper=None, all_sinks_merge=True, full_refresh=True)


def test_without_a_contract_the_stored_type_serves() -> None:
    stored = Watermark("c", T.BIGINT, "9")
    bounds = resolve_slice(node(None), stored, run_started_at=NOON, probe_upper="10", all_sinks_merge=False)
    assert ends(bounds) == (excl("9"), incl("10"))


def test_what_a_connector_delivers_beyond_the_end_does_not_move_the_mark() -> None:
    bounds = resolve(node(), "10", "50")
    assert candidate(bounds, "70", T.INT) == "50"
    assert candidate(bounds, "9", T.INT) is None


def sql(lower: Bound | None, upper: Bound | None, stored: str | None, probe: str | None) -> SliceBounds:
    return resolve_sql_slice(
        lower,
        upper,
        stored=None if stored is None else Watermark("c", T.INT, stored),
        run_started_at=NOON,
        probe_upper=probe,
        cursor_type=T.INT,
    )


def test_sql_floors_mean_what_they_say_and_ceilings_are_pinned() -> None:
    assert ends(sql(excl("10"), None, "10", "50")) == (excl("10"), incl("50"))
    assert ends(sql(incl("8"), incl("30"), "10", "50")) == (incl("8"), incl("30"))
    assert ends(sql(incl("8"), incl("70"), "10", "50")) == (incl("8"), incl("50"))


def test_an_empty_slice_moves_to_an_inclusive_sql_ceiling_only() -> None:
    assert candidate(sql(excl("10"), incl("30"), "10", "50"), None, T.INT) == "30"
    assert candidate(sql(excl("10"), excl("30"), "10", "50"), None, T.INT) is None
    assert candidate(sql(excl("10"), excl("30"), "10", "50"), "29", T.INT) == "29"
    caught = sql(excl("30"), incl("30"), "30", "50")
    assert (caught.caught_up, caught.has_stop) == (True, True)


def test_a_sql_ceiling_in_the_future_does_not_move_an_empty_slice() -> None:
    stored = Watermark("c", T.DATE, "2026-07-09")
    bounds = resolve_sql_slice(
        excl("2026-07-09"), incl("2026-08-09"), stored=stored, run_started_at=NOON, probe_upper=None, cursor_type=T.DATE
    )
    assert candidate(bounds, None, T.DATE) is None


# One value per row; what a run reads is what lies within its bounds.


def inside(value: str, bounds: SliceBounds, type_: CursorType) -> bool:
    if bounds.lower is not None:
        side = compare(value, bounds.lower.value, type_)
        if side < 0 or (side == 0 and not bounds.lower.inclusive):
            return False
    if bounds.upper is not None:
        side = compare(value, bounds.upper.value, type_)
        if side > 0 or (side == 0 and not bounds.upper.inclusive):
            return False
    return True


def run_until_still(
    n: SourceNode, rows: list[str], type_: CursorType, merge: bool
) -> tuple[list[list[str]], list[str]]:
    """Run until two runs in a row store nothing; the rows of each run, and the marks stored."""
    stored: str | None = None
    reads: list[list[str]] = []
    marks: list[str] = []
    for _ in range(200):
        probe = highest(rows, type_)
        bounds = resolve(n, stored, probe, merge=merge)
        read = [row for row in rows if inside(row, bounds, type_)]
        reads.append(read)
        new = candidate(bounds, highest(read, type_), type_)
        if new is None:
            return reads, marks
        stored = new
        marks.append(new)
    raise AssertionError("it never stands still")


def highest(values: list[str], type_: CursorType) -> str | None:
    return max(values, key=lambda v: int(v) if type_ is T.INT else date.fromisoformat(v).toordinal(), default=None)


numbers = st.lists(st.integers(1, 100).map(str), max_size=12)
days = st.lists(st.dates(date(2026, 1, 2), date(2026, 7, 9)).map(date.isoformat), max_size=20)


@settings(max_examples=50)
@given(numbers, st.integers(1, 40), st.one_of(st.none(), st.integers(1, 120)), st.booleans())
def test_number_windows_tile_what_there_is(rows: list[str], window: int, until: int | None, merge: bool) -> None:
    until_text = {} if until is None else {"until": str(until)}
    n = node(T.INT, initial="0", max_window=str(window), **until_text)
    reads, marks = run_until_still(n, rows, T.INT, merge)
    wanted = sorted(row for row in rows if until is None or int(row) <= until)
    read = [row for slice_ in reads for row in slice_]
    if merge:
        assert set(read) == set(wanted)
    else:
        assert sorted(read) == wanted
    assert [int(m) for m in marks] == sorted({int(m) for m in marks})
    if until is None and marks:
        assert int(marks[-1]) == max(map(int, rows))
    if until is not None:
        assert not marks or int(marks[-1]) == until


@settings(max_examples=50)
@given(days, st.integers(1, 40), st.booleans())
def test_day_windows_tile_what_there_is(rows: list[str], window: int, merge: bool) -> None:
    n = node(T.DATE, initial="2026-01-01", max_window=f"{window}d")
    reads, marks = run_until_still(n, rows, T.DATE, merge)
    read = [row for slice_ in reads for row in slice_]
    assert set(read) == set(rows)
    if not merge:
        assert sorted(read) == sorted(rows)
    assert marks == sorted(set(marks))
    if rows and marks:
        assert marks[-1] == max(rows)


@given(numbers, numbers, st.booleans())
def test_unwindowed_runs_read_everything_that_comes_above_the_mark(old: list[str], new: list[str], merge: bool) -> None:
    _, marks = run_until_still(node(), old, T.INT, merge)
    stored = marks[-1] if marks else None
    rows = old + new
    bounds = resolve(node(), stored, max(rows, key=int, default=None), merge=merge)
    read = {row for row in rows if inside(row, bounds, T.INT)}
    assert read >= {row for row in new if stored is None or int(row) > int(stored)}
    if rows:
        saved = candidate(bounds, max(read, key=int, default=None), T.INT)
        assert saved is None or int(saved) <= max(map(int, rows))


@given(
    st.integers(0, 300),
    st.one_of(st.none(), st.integers(0, 300)),
    st.one_of(st.none(), st.integers(0, 300)),
    st.one_of(st.none(), st.integers(1, 50)),
    st.one_of(st.none(), st.integers(0, 300)),
    st.booleans(),
)
def test_a_mark_never_moves_back(
    stored: int, probe: int | None, landed: int | None, window: int | None, until: int | None, merge: bool
) -> None:
    sync = {
        "initial": "0",
        **({"max_window": str(window)} if window else {}),
        **({"until": str(until)} if until else {}),
    }
    bounds = resolve(node(T.INT, **sync), str(stored), None if probe is None else str(probe), merge=merge)
    new = candidate(bounds, None if landed is None else str(landed), T.INT)
    assert new is None or int(new) > stored
    if new is not None and bounds.upper is not None:
        assert int(new) <= int(bounds.upper.value)


@given(st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)), st.integers(1, 10**7))
def test_a_time_mark_never_passes_the_start_of_the_run(initial: datetime, seconds: int) -> None:
    n = node(T.TIMESTAMP, initial=initial.isoformat(), max_window=f"{seconds}s")
    bounds = resolve(n, None, None)
    new = candidate(bounds, None, T.TIMESTAMP)
    assert new is None or new <= "2026-07-10T12:00:00.000000"
    assert bounds.caught_up == (initial >= NOON.replace(tzinfo=None))
