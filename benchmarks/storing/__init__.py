"""Raw tables of the storage benchmark: made, compacted, read."""
