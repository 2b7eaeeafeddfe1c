"""Interceptors: they change or drop events between source and channel. `base` is what all share."""
