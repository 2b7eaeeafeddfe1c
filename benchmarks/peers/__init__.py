"""Other people's time series databases, as benchmarks measure them beside ours: Debian's packages, on this machine."""
