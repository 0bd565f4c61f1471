"""Files: formats, globs, and the connector of local ones."""
