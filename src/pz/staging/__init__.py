"""One run's DuckDB: the session, pz_meta, the ledgers, fingerprints, what a prior run left."""
