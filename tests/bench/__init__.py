"""The bench: what a request costs, beside a server that does nothing and servers that others made."""
