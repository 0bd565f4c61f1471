"""The four kinds of nodes, one module each: what it means to execute one."""
