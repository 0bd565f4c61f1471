"""What a server says about waiting: ``Retry-After`` (RFC 9110, 10.2.3) and the rate-limit headers in use.

A server's clock may be wrong: a date in ``Retry-After`` is measured against the response's own ``Date``. Nothing here ever
asks for more than a day, and what cannot be read counts as not said.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

from pz.frozen import frozen

__all__ = ["Budget", "budget_of", "retry_after"]

LONGEST = 86_400.0
_EPOCH_FROM = 10_000_000
_EPOCH_TO = 253_402_300_800  # the year 10000; beyond it the number counts milliseconds, which nobody can tell for sure


@frozen
class Budget:
    """Requests that are left, and seconds until the server counts anew."""

    remaining: int
    reset_seconds: float


def retry_after(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """Seconds to wait; 0 for the past; None when the header is absent or cannot be read."""
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    number = _number(text)
    if number is not None:
        return min(max(number, 0.0), LONGEST)
    moment = _date(text)
    if moment is None:
        return None
    sent = _date(headers.get("date", ""))
    reference = sent if sent is not None else (time.time() if now is None else now)
    return min(max(moment - reference, 0.0), LONGEST)


def budget_of(headers: Mapping[str, str], *, now: float | None = None) -> Budget | None:
    """The budget that a response reports; None when it reports none, or nothing that can be read.

    ``X-RateLimit-*`` and ``RateLimit-*``: a reset beyond 10,000,000 is a moment (epoch seconds), else a number of seconds.
    """
    for prefix in ("x-ratelimit-", "ratelimit-"):
        remaining = _number(headers.get(f"{prefix}remaining", ""))
        reset = _number(headers.get(f"{prefix}reset", ""))
        if remaining is None or reset is None or reset >= _EPOCH_TO:
            continue
        if reset > _EPOCH_FROM:
            sent = _date(headers.get("date", ""))
            reset -= sent if sent is not None else (time.time() if now is None else now)
        return Budget(int(remaining), min(max(reset, 0.0), LONGEST))
    return None


def _number(text: str) -> float | None:
    """Plain digits, perhaps with a sign or a fraction; None for anything else (400 digits are many seconds)."""
    text = text.strip()
    body = text.removeprefix("-").removeprefix("+")
    if not body or not body.isascii() or not body.replace(".", "", 1).isdigit():
        return None
    return float(text) if len(text) < 100 else (-LONGEST if text.startswith("-") else LONGEST)


def _date(text: str) -> float | None:
    """Epoch seconds of an HTTP date; None for anything else."""
    if not text:
        return None
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    try:
        return aware.timestamp()
    except (OverflowError, ValueError):
        return None
