"""What all tests share."""

from __future__ import annotations

import signal

from hypothesis import settings

from postgres_server import _database, database, postgres_server

__all__ = ["_database", "database", "postgres_server"]

# Shared machines are slow now and then; a deadline would test them, not us.
settings.register_profile("pz", deadline=None)
settings.load_profile("pz")

# A shell starts its background jobs deaf to Ctrl-C, and children inherit that; the tests of signals need ears.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
