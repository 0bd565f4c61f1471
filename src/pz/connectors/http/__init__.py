"""HTTP APIs as source and as sink: pages, feeds, chunks, and the guards that keep a lying server from losing rows."""
