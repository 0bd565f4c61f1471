"""PostgreSQL: tables and queries as sources, tables as sinks, change capture by logical replication."""
