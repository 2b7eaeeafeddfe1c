"""Imports of the files in the wheel of the agent: each is satisfied by the wheel, its dependencies or a named extra."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module, metadata
from pathlib import Path

import pytest

from artimon.runtime import version
from artimon.runtime.version import (
    AGENT,
    EXTRAS,
    PLATFORM,
    MissingLibraryError,
    missing_requirement,
    requirements_named,
)
from scripts.pin import closure, normal

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "scripts" / "agent_wheel" / "pyproject.toml").read_text())
OURS = frozenset({"alerts", "artimon", "pipeline", "query_dsl", "sources", "varstore"})
NOT_REACHED = {
    ("artimon", "artimon.session.open_session"),  # in `requirements_named`, which names the platform
    ("artimon", "query_dsl.stores.history.engine.History"),  # likewise
    ("artimon.runtime.file_systems", "obstore"),  # an agent opens hdfs:// and file:// only
    ("artimon.runtime.file_systems", "obstore.store.from_url"),
}
STARTS = {
    "artimon.cli.agent_process": "",
    "sources.scrape.discovery.scrape_config": "",
    "sources.receive.receiver": "receive",
    "sources.receive.grpc_listener": "grpc",
}
"""Modules that a configuration loads, and the extra that it needs."""
Import = tuple[str, bool]
"""Dotted name, and True if it is imported with its module, not in a function."""


@cache
def wheel_modules() -> dict[str, Path]:
    """Return the modules of the wheel by dotted name."""
    found = {}
    for path in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"].values():
        place = ROOT / path
        for file in [place] if place.is_file() else place.rglob("*.py"):
            found[".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")] = file
    return found


def imports(node: ast.AST, at_import: bool = True) -> Iterator[Import]:
    """Yield the imports below a node, but those for type checkers only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            yield from ((alias.name, at_import) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from ((f"{child.module}.{alias.name}", at_import) for alias in child.names)
        yield from imports(child, at_import and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


@cache
def module_imports(module: str) -> list[Import]:
    found = imports(ast.parse(wheel_modules()[module].read_text()))
    return [one for one in found if one[0].partition(".")[0] not in sys.stdlib_module_names]


def own_module(name: str) -> str:
    """Return the module of the wheel that an import names, "" if none."""
    return next((one for one in (name, name.rpartition(".")[0]) if one in wheel_modules()), "")


@cache
def distributions(extra: str = "") -> set[str]:
    """Return the closure of the wheel's dependencies, with those of an extra."""
    project = PROJECT["project"]
    needs = set(project["dependencies"])
    waiting = {extra} - {""}
    while waiting:
        for need in project["optional-dependencies"][waiting.pop()]:
            if need.startswith(f"{AGENT}["):
                waiting.add(need.removeprefix(f"{AGENT}[").removesuffix("]"))
            else:
                needs.add(need)
    return closure(needs)


@cache
def _installed() -> dict[str, set[str]]:
    return {top: set(map(normal, names)) for top, names in metadata.packages_distributions().items()}


def providers(name: str) -> set[str]:
    """Return the distributions that have a module."""
    namespaces = {"google": {"protobuf"}, "opentelemetry": {"opentelemetry-proto"}}
    top = name.partition(".")[0]
    return namespaces.get(top) or _installed().get(top, set())


def test_every_import_is_in_the_wheel_its_dependencies_or_an_extra() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    base, wrong = distributions(), []
    for module in wheel_modules():
        for name, _ in module_imports(module):
            top = name.partition(".")[0]
            if (module, name) in NOT_REACHED or top == "bookkeeper" or providers(name) & base:
                continue
            if top in OURS:
                wrong += [] if own_module(name) else [f"{module}: {name} is not in the wheel"]
            elif not (extra := EXTRAS[AGENT].get(top, "")):
                wrong.append(f"{module}: {name} is in no extra")
            elif extra not in extras or not providers(name) & distributions(extra):
                wrong.append(f"{module}: the extra {extra} does not bring {name}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("start", "extra"), STARTS.items())
def test_a_configuration_loads_what_its_extra_brings(start: str, extra: str) -> None:
    """Everything that is imported with a module, transitively, is there: an agent without pyarrow can receive."""
    installed, seen, waiting, wrong = distributions(extra), set[str](), [start], []
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        for name, at_import in module_imports(module):
            if own := own_module(name):
                waiting += [own] if at_import else []
            elif at_import and not name.startswith("bookkeeper") and not providers(name) & installed:
                wrong.append(f"{module}: {name}")
    assert not wrong, "\n".join(wrong)


def test_the_extras_of_the_platform_are_its_own() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS[PLATFORM].values()) <= project["optional-dependencies"].keys()


@pytest.mark.parametrize(
    ("wheel", "library", "wanted"),
    [
        (AGENT, "kafka.errors", "artimon-agent[kafka]"),
        (AGENT, "hdfs_native", "artimon-agent[hdfs]"),
        (AGENT, "uvicorn", "artimon-agent[receive]"),
        (AGENT, "grpc", "artimon-agent[grpc]"),
        (AGENT, "artimon.session", "artimon"),
        (AGENT, "nothing", ""),
        (PLATFORM, "grpc", "artimon[grpc]"),
        (PLATFORM, "artimon.session", ""),
    ],
)
def test_a_missing_library_names_wheel_and_extra(
    wheel: str, library: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version, "_installed", lambda: (wheel, "1"))
    assert missing_requirement(ImportError(name=library)) == wanted


def test_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "_installed", lambda: (AGENT, "1"))
    monkeypatch.setitem(sys.modules, "grpc", None)
    wanted = r"grpc is not installed: pip install 'artimon-agent\[grpc\]'"
    with pytest.raises(MissingLibraryError, match=wanted), requirements_named():
        import_module("grpc")
