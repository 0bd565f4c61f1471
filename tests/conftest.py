"""What all tests share."""

from __future__ import annotations

import signal

from hypothesis import settings

from postgres_server import _database, database, postgres_server

__all__ = ["_database", "database", "postgres_server"]

# Shared machines are slow now and then; a deadline would test them, not us.
settings.register_profile("pz", deadline=None)
settings.load_profile("pz")

# A shell starts its background jobs deaf to Ctrl-C, nohup to hang-ups, and children inherit that; the tests of signals need ears.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)
