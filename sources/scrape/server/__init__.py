"""Base of the sources of foreign servers: an HTTP client, and a source that polls one target."""
