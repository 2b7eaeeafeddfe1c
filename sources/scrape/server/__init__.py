"""What sources of foreign servers have in common: an HTTP client, and a source that asks one target again and again."""
