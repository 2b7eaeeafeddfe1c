"""Peers of the benchmarks: other time series databases and Flume, run on this machine."""
