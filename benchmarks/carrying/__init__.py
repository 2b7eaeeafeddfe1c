"""What the benchmark of the transport is made of: bodies encoded beforehand, agents as processes, the servers."""
