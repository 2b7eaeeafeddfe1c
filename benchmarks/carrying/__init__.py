"""Components of the transport benchmark: encoded bodies, agent processes, servers."""
