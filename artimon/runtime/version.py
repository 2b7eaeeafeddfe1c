"""Version of Artimon that runs."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """Return the version of Artimon; "source" if it runs from a folder of source code."""
    try:
        return version("artimon")
    except PackageNotFoundError:
        return "source"
