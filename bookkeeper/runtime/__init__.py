"""Base of bookkeeper: settings from the environment, default limits, the wall clock, the application's log.

May import the standard library only.
"""
