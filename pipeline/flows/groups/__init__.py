"""Groups of sinks that look like one: `standing` decides who is tried next, `choice` declares the groups."""
