"""Wheel of Artimon that runs: its version, and what to install for a library that it lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType

PLATFORM, AGENT = "artimon", "artimon-agent"
"""Wheels that contain this module; a host has one of them."""
EXTRAS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        PLATFORM: {"grpc": "grpc"},
        AGENT: {
            **dict.fromkeys(("google", "httptools", "opentelemetry", "uvicorn", "uvloop"), "receive"),
            **dict.fromkeys(("hdfs_native", "pyarrow"), "hdfs"),
            **{"grpc": "grpc", "kafka": "kafka"},
        },
    }
)
"""Extra of a wheel that brings a library, by the name that is imported."""
_OURS = frozenset({"alerts", "artimon", "pipeline", "query_dsl", "sources", "varstore"})


class MissingLibraryError(ImportError):
    """A library of an extra, or a module of the other wheel, is not installed. The text names what to install."""


def _installed() -> tuple[str, str]:
    from importlib.metadata import PackageNotFoundError, version  # each command line would wait for it

    for name in (PLATFORM, AGENT):
        with suppress(PackageNotFoundError):
            return name, version(name)
    return PLATFORM, "source"


def installed_version() -> str:
    """Return the version of Artimon; "source" if it runs from a folder of source code."""
    return _installed()[1]


def missing_requirement(error: ImportError) -> str:
    """Return what to install for what could not be imported, such as `artimon-agent[kafka]`; "" if no wheel of ours
    brings it."""
    library, (wheel, _) = (error.name or "").partition(".")[0], _installed()
    if extra := EXTRAS[wheel].get(library):
        return f"{wheel}[{extra}]"
    return PLATFORM if wheel == AGENT and library in _OURS else ""


@contextmanager
def requirements_named() -> Iterator[None]:
    """Raise MissingLibraryError for a library that could not be imported, if a wheel of ours brings it."""
    try:
        yield
    except ImportError as error:
        if not (wanted := missing_requirement(error)):
            raise
        raise MissingLibraryError(f"{error.name} is not installed: pip install '{wanted}'", name=error.name) from error
