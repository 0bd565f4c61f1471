"""What connector authors and our own tests share: a scripted far side, oracles, a conformance suite and fault levers.

Nothing here runs in production. `server.Server` is a small "far side" in a directory; `reference` holds connectors that
talk to it; `conformance.run_conformance` puts any connector through one suite; `oracle` compares relations; `faults` kills
and stops child processes at durable steps.
"""
