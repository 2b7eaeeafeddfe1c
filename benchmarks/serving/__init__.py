"""Our servers and those of peers, queried by several clients."""
