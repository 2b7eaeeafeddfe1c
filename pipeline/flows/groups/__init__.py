"""Groups of sinks behind the interface of one: `standing` orders the sinks to try, `choice` declares the groups."""
