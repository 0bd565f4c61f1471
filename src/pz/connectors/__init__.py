"""Connectors: the contract they all follow, the registry that finds them, and our own."""
