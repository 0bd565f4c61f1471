"""From stored state and declaration to the slice that a run reads: both ends fixed before the first row.

Without a window the slice is everything above the watermark up to the highest cursor value there is now. With
``max_window`` it is at most one window long and starts at ``initial``. In both cases the upper end is pinned, so a row that
changes while others are read belongs to the next slice.

How an end is treated depends on what a repeated row does:

* all outputs merge: the floor is inclusive (a date: the whole last day), so that ties and late rows of the boundary
  come again and are deduplicated;
* otherwise the floor is exclusive, and with a date cursor the unfinished day waits.

``initial`` itself is always exclusive: it was chosen, not delivered.
"""

from __future__ import annotations

from datetime import UTC, datetime

from pz.connectors.contract import Bound
from pz.cursors import (
    CursorError,
    CursorType,
    Length,
    add_window,
    canonical,
    compare,
    lowest,
    parse_window,
    subtract_window,
)
from pz.errors import Code, Problem, StateError
from pz.frozen import frozen
from pz.graph.model import SourceNode
from pz.graph.rules import contract_cursor_type, told_cursor_type
from pz.project.model import SyncDecl
from pz.state.entries import Watermark

__all__ = ["SliceBounds", "candidate", "declared_cursor_type", "resolve_slice", "resolve_sql_slice"]

NOW = "now"
EXCLUSIVE = "exclusive"


@frozen
class SliceBounds:
    """The two ends of a slice (None: open), and what its emptiness means.

    ``floor`` is the state that the slice continues from: the lower bound without a lookback. ``caught_up``: nothing lies
    between floor and upper end; the read still happens, state never advances. ``has_stop``: the dataset has an end
    (``until``, a ceiling in SQL), so `--until-caught-up` waits for it. ``moves_when_empty``: a slice without new rows
    advances to its upper end. ``reaches_stop``: no further slice is to come, as far as can be told now. ``beyond_now``: the
    source holds a cursor value later than this run, probably a typo.
    """

    lower: Bound | None = None
    upper: Bound | None = None
    floor: str | None = None
    caught_up: bool = False
    has_stop: bool = False
    moves_when_empty: bool = False
    beyond_now: bool = False
    reaches_stop: bool = True


def declared_cursor_type(node: SourceNode) -> CursorType | None:
    """The cursor's type by the dataset's columns, or without any by the connector's option; None when neither tells."""
    if node.read.columns is None:
        return told_cursor_type(node.read.options)
    return contract_cursor_type(node.read.columns, node.read.sync.cursor or "")


def resolve_slice(
    node: SourceNode,
    stored: Watermark | None,
    *,
    run_started_at: datetime,
    probe_upper: str | None,
    all_sinks_merge: bool,
    full_refresh: bool = False,
    cursor_type: CursorType | None = None,
) -> SliceBounds:
    """Resolve the slice of a dataset with a ``sync: incremental`` block.

    ``probe_upper`` is the highest cursor value that the source reports before reading, None when it cannot tell or has no
    rows. ``run_started_at`` is that of the first run of the chain. ``cursor_type`` is what is known beyond contract and
    stored state (a connector's own option, the probed column); without any type the slice is open at both ends, as on a
    first run. Raises `StateError`: PZ0505 when the stored type is another one, PZ0706 when the stored value is none, PZ0213
    when the block does not fit a type that only the landed data could tell.
    """
    type_ = declared_cursor_type(node) or cursor_type or (None if stored is None else stored.type)
    if stored is not None and not full_refresh:
        _check_stored(node, stored, type_)
    if type_ is None:
        return SliceBounds(upper=None if probe_upper is None else Bound(probe_upper, inclusive=True))
    try:
        resolver = _Resolver(node.read.sync, type_, run_started_at, probe_upper, all_sinks_merge)
        return resolver.resolve(None if full_refresh or stored is None else stored.value)
    except CursorError as failure:  # without a column contract the compiler could not know the type
        raise StateError(Problem(Code.PZ0213, f"the `sync:` block of '{node.key}': {failure}")) from failure


def resolve_sql_slice(
    lower: Bound | None,
    upper: Bound | None,
    *,
    stored: Watermark | None,
    run_started_at: datetime,
    probe_upper: str | None,
    cursor_type: CursorType | None,
    full_refresh: bool = False,
) -> SliceBounds:
    """Pin the slice of a dataset whose bounds come from ``watermark()`` in SQL; the floor means what the SQL says.

    The ceiling is the tighter of the SQL's and the highest cursor value there is. A ceiling that is exclusive, or later than
    the run, does not advance an empty slice: the rows below it may still be to come.
    """
    floor = None if stored is None or full_refresh else stored.value
    if cursor_type is None:
        return SliceBounds(lower, upper, floor, has_stop=upper is not None)
    pinned = upper
    if probe_upper is not None and (upper is None or compare(probe_upper, upper.value, cursor_type) < 0):
        pinned = Bound(probe_upper, inclusive=True)
    start = floor if floor is not None else None if lower is None else lower.value
    caught_up = upper is not None and start is not None and compare(upper.value, start, cursor_type) <= 0
    now = _moment_of(run_started_at, cursor_type)
    future = now is not None and pinned is not None and compare(pinned.value, now, cursor_type) > 0
    moves = upper is not None and upper.inclusive and pinned == upper and not caught_up and not future
    return SliceBounds(
        lower,
        pinned,
        floor,
        caught_up,
        upper is not None,
        moves,
        beyond_now=future,
        reaches_stop=caught_up or pinned != upper,
    )


def candidate(bounds: SliceBounds, landed: str | None, cursor_type: CursorType) -> str | None:
    """The value that the dataset's state may advance to, given the highest cursor value that landed (None: none did).

    Never below the floor and never above the upper end, whatever the connector delivered. Rows at or below the floor are
    the boundary read again, or a lookback: the slice counts as empty then.
    """
    if bounds.caught_up:
        return None
    if landed is not None and bounds.upper is not None:
        landed = lowest((landed, bounds.upper.value), cursor_type)
    if landed is not None and (bounds.floor is None or compare(landed, bounds.floor, cursor_type) > 0):
        return landed
    if bounds.moves_when_empty and bounds.upper is not None:
        return bounds.upper.value
    return None


def _check_stored(node: SourceNode, stored: Watermark, type_: CursorType | None) -> None:
    if type_ is not None and stored.type is not type_:
        raise StateError(
            Problem(
                Code.PZ0505,
                f"cursor '{stored.cursor}' of '{node.key}' is {type_}, but its stored watermark is {stored.type}",
                hint="align the column contract with the stored type, or run with --full-refresh",
            )
        )
    try:
        canonical(stored.value, stored.type)
    except CursorError as failure:
        problem = Problem(
            Code.PZ0706,
            f"the stored watermark of '{node.key}' is no {stored.type}",
            hint=f"set or clear it with `pz state set {node.key} --value ...` or `pz state clear {node.key}`",
        )
        raise StateError(problem) from failure


class _Resolver:
    """The rules for one declaration, type and moment."""

    def __init__(
        self,
        sync: SyncDecl,
        type_: CursorType,
        run_started_at: datetime,
        probe_upper: str | None,
        all_sinks_merge: bool,
    ) -> None:
        self.sync = sync
        self.type = type_
        self.now = _moment_of(run_started_at, type_)
        self.probe_upper = None if probe_upper is None else canonical(probe_upper, type_)
        self.merges = all_sinks_merge
        self.until = self._until()

    def resolve(self, stored: str | None) -> SliceBounds:
        initial = None if self.sync.initial is None else canonical(self.sync.initial, self.type)
        floor = stored if stored is not None else initial
        upper = self._upper(floor)
        windowed = self.sync.max_window is not None
        caught_up = (
            (windowed or self.until is not None)
            and floor is not None
            and upper is not None
            and compare(upper, floor, self.type) <= 0
        )
        return SliceBounds(
            lower=self._lower(stored, initial),
            upper=None if upper is None else Bound(upper, inclusive=True),
            floor=floor,
            caught_up=caught_up,
            has_stop=self.until is not None,
            moves_when_empty=windowed and not caught_up and self._end_is_past(),
            reaches_stop=caught_up or self._is_last(upper, floor),
            beyond_now=self.now is not None and upper is not None and compare(upper, self.now, self.type) > 0,
        )

    def _is_last(self, upper: str | None, floor: str | None) -> bool:
        """Whether the slice ends for another reason than the length of the window: at the stop, or where the rows end."""
        window_end = self._window_end(floor)
        if window_end is None or upper is None:
            return True
        at_stop = self.until is not None and compare(upper, self.until, self.type) == 0
        return at_stop or compare(upper, window_end, self.type) < 0

    def _lower(self, stored: str | None, initial: str | None) -> Bound | None:
        if stored is None:
            return None if initial is None else Bound(initial, inclusive=False)
        inclusive = self.merges and self.sync.boundary != EXCLUSIVE
        if self.sync.lookback is None:
            return Bound(stored, inclusive)
        back = subtract_window(stored, parse_window(self.sync.lookback, self.type, zero=True), self.type)
        if initial is not None and compare(back, initial, self.type) <= 0:
            return Bound(initial, inclusive=False)  # what lies before was never asked for
        return Bound(back, inclusive)

    def _upper(self, floor: str | None) -> str | None:
        ends = [end for end in (self._window_end(floor), self.until, *self._caps()) if end is not None]
        return lowest(ends, self.type) if ends else None

    def _window_end(self, floor: str | None) -> str | None:
        if self.sync.max_window is None or floor is None:
            return None
        return add_window(floor, parse_window(self.sync.max_window, self.type), self.type)

    def _caps(self) -> tuple[str | None, ...]:
        """Where the slice must end so that the mark never passes a row that does not exist yet.

        A closed past (``until`` not later than now) needs no other cap: its rows exist already, or are late.
        """
        waiting = self._yesterday() if self.type is CursorType.DATE and not self.merges else None
        if self.until is not None and (self.now is None or compare(self.until, self.now, self.type) <= 0):
            return (waiting,)
        windowed = self.sync.max_window is not None
        return (waiting, self.probe_upper, self.now if windowed else None)

    def _end_is_past(self) -> bool:
        """Whether rows up to the window's end would exist by now; for numbers only the source can tell."""
        return self.type.temporal or self.until is not None or self.probe_upper is not None

    def _until(self) -> str | None:
        if self.sync.until is None:
            return None
        if self.sync.until != NOW:
            return canonical(self.sync.until, self.type)
        if self.now is None:
            raise StateError(Problem(Code.PZ0213, f"`until: now` needs a date or timestamp cursor, not {self.type}"))
        return subtract_window(self.now, Length(1), self.type)

    def _yesterday(self) -> str | None:
        return None if self.now is None else subtract_window(self.now, Length(1), self.type)


def _moment_of(moment: datetime, type_: CursorType) -> str | None:
    """The moment as a value of the cursor; None for numbers. Naive cursors are taken to be UTC, as all are."""
    utc = moment.astimezone(UTC)
    if type_ is CursorType.DATE:
        return utc.date().isoformat()
    return canonical(utc.replace(tzinfo=None).isoformat(), type_) if type_.temporal else None
