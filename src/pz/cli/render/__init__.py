"""Three views of one event stream: console lines, the live tree, NDJSON."""
