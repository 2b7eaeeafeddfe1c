"""Base of the sources of foreign servers: an HTTP client, and a source that asks one target again and again."""
