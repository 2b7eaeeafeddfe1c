"""Interceptors: change or drop events between source and channel."""
