"""The two blocks that pace a connection: ``retry`` (also on a read or a write) and ``rate_limit``."""

from __future__ import annotations

from pz.errors import Code
from pz.project.fields import Fields
from pz.project.keys import MAX_RATE, RATE_LIMIT, RETRY
from pz.project.model import RateLimit, RetrySettings

__all__ = ["parse_rate_limit", "parse_retry"]


def parse_retry(owner: Fields) -> RetrySettings | None:
    """The ``retry`` block of ``owner``; None when absent. Problems are PZ0121."""
    fields = owner.inner("retry", RETRY, Code.PZ0121)
    if fields is None:
        return None
    retry = RetrySettings(
        max_attempts=fields.whole("max_attempts", 1),
        base_delay=fields.duration("base_delay"),
        max_delay=fields.duration("max_delay"),
    )
    if retry.base_delay is not None and retry.max_delay is not None and retry.max_delay < retry.base_delay:
        fields.report("max_delay", f"'{fields.path('max_delay')}' is shorter than base_delay", hint="raise max_delay")
    return retry


def parse_rate_limit(owner: Fields) -> RateLimit | None:
    """The ``rate_limit`` block of a connection; None when absent. Problems are PZ0318."""
    if "rate_limit" in owner.block.entries and owner.get("rate_limit") is None:
        owner.report("rate_limit", f"'{owner.path('rate_limit')}' is empty", code=Code.PZ0318)
    fields = owner.inner("rate_limit", RATE_LIMIT, Code.PZ0318)
    if fields is None:
        return None
    fields.require()
    per_minute = fields.whole("requests_per_minute", 1, MAX_RATE)
    burst = fields.whole("burst", 1, MAX_RATE)
    return None if per_minute is None else RateLimit(per_minute, burst or max(1, per_minute // 60))
