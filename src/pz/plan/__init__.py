"""Graph and connectors become small frozen records: way, reason, guarantee, retry, budget."""
