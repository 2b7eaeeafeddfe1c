"""Functions from installed packages: entry points of the group "artimon.functions", each a name and an Entry.

They are loaded once per process, at the first unknown function name or completion. A broken plugin is skipped with a
warning; built-in names cannot be replaced. Query text can call plugins but no other user-defined functions, because
installing a package implies trust. Shards do not load plugins, so they run in the process that evaluates the query.

    [project.entry-points."artimon.functions"]
    spread = "my_package.functions:SPREAD"
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType

from query_dsl.functions.registry import Entry

GROUP = "artimon.functions"
_log = logging.getLogger(__name__)


@cache
def plugins(reserved: frozenset[str]) -> Mapping[str, Entry]:
    """Return name -> entry of the functions of installed packages. Loaded once per process."""
    found, problems = load(sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)), reserved)
    for problem in problems:
        _log.warning("%s", problem)
    return found


def load(points: Iterable[EntryPoint], reserved: frozenset[str]) -> tuple[Mapping[str, Entry], tuple[str, ...]]:
    """Load entry points; return the valid entries, none with a `reserved` name, and a message for each rejected one."""
    found: dict[str, Entry] = {}
    problems = []
    for point in points:
        try:
            found[point.name] = _entry(point, found, reserved)
        except Exception as problem:  # a package may do anything while it is imported
            problems.append(f"the function {point.name!r} of {_origin(point)} is left out: {_reason(problem)}")
    return MappingProxyType(found), tuple(problems)


class _EntryRejected(ValueError):
    """Rejection of an entry point; the message has the reason."""


def _entry(point: EntryPoint, found: Mapping[str, Entry], reserved: frozenset[str]) -> Entry:
    if not point.name.isidentifier() or point.name.startswith("_"):
        raise _EntryRejected(
            "its name is not a valid function name: use letters, digits and _, beginning with a letter"
        )
    if point.name in reserved:
        raise _EntryRejected("a built-in function has this name and cannot be replaced")
    if point.name in found:
        raise _EntryRejected("another package provides a function of this name")
    entry = point.load()
    if not isinstance(entry, Entry):
        raise _EntryRejected(
            f"not an entry (Mapper, PointFunction, Reducer, Operator, Step) but {type(entry).__name__}"
        )
    if getattr(entry, "family", "") == "presence":
        raise _EntryRejected("steps of this family are methods, which packages cannot add")
    if entry.name != point.name:
        raise _EntryRejected(f"its entry is called {entry.name!r}: use the same name for both")
    return entry


def _origin(point: EntryPoint) -> str:
    package = f"{point.dist.name} {point.dist.version}" if point.dist is not None else "a package"
    return f"{package} ({point.value})"


def _reason(problem: Exception) -> str:
    return str(problem) if isinstance(problem, _EntryRejected) else f"{type(problem).__name__}: {problem}"
