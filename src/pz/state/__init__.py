"""Watermarks and tokens, and the one walk that advances them behind committed outputs."""
