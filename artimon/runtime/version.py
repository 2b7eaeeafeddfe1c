"""Version of Artimon that runs."""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

DISTRIBUTIONS = ("artimon", "artimon-agent")
"""Wheels that contain this module; a host has one of them."""


def installed_version() -> str:
    """Return the version of Artimon; "source" if it runs from a folder of source code."""
    for name in DISTRIBUTIONS:
        with suppress(PackageNotFoundError):
            return version(name)
    return "source"
