"""Targets of the configuration: where a server or a script is, its labels, and the credentials for it. Data only.

May import `sources.state` and `sources.base`.
"""
