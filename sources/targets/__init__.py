"""Targets of the configuration: address of a server or script, its labels, and the credentials for it. Data only.

May import `sources.state` and `sources.base`.
"""
