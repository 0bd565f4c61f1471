"""The compiler: nodes, identity, SQL trees, pushdown, watermarks, selection, the pairing matrix."""
