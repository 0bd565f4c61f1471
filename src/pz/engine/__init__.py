"""The phases of a run, dispatch, the four kinds of nodes, retry, resilience."""
