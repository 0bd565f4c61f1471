"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

from postgres_server import _database, database, postgres_server

__all__ = ["_database", "database", "postgres_server"]

# Shared machines are slow now and then; a deadline would test them, not us.
settings.register_profile("pz", deadline=None)
settings.load_profile("pz")
