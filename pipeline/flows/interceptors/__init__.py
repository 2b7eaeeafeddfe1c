"""Interceptors: change or drop events between source and channel. `base` is their base class."""
