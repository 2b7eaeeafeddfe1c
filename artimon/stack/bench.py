"""`artimon bench`: runs a module of the repository's benchmarks/ in a separate process and prints its results."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from artimon.stack.stack_errors import StackError

FAMILIES = {"fleet": ("fleet", "fleet_agent", "fleet_sessions")}
"""Benchmarks whose name stands for several modules, which print each line once; with arguments, for the module of that
name only."""


def known_benchmarks() -> list[str]:
    """Return the names of the benchmarks. Raises StackError outside a clone of the repository."""
    spec = importlib.util.find_spec("benchmarks")
    if spec is None or not spec.submodule_search_locations:
        raise StackError("the benchmarks come with the repository, not with the installed package: run it from a clone")
    folder = Path(next(iter(spec.submodule_search_locations)))
    return sorted(path.stem for path in folder.glob("*.py") if path.stem not in ("__init__", "common"))


def run_benchmark(name: str, arguments: Sequence[str], as_json: bool, say: Callable[[str], None]) -> int:
    """Run one benchmark and print its lines as JSON or readable text; returns its exit code, 2 for an unknown name."""
    known = known_benchmarks()
    if name not in known:
        say(f"artimon: unknown benchmark {name!r}: known benchmarks are {', '.join(known) or 'none'}")
        return 2
    modules = (name,) if arguments else FAMILIES.get(name, (name,))
    return max(_run_module(module, arguments, as_json) for module in modules)


def _run_module(name: str, arguments: Sequence[str], as_json: bool) -> int:
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(line.rstrip("\n") if as_json else readable(line), flush=True)
    return abs(int(process.returncode))


def readable(line: str) -> str:
    """Return a benchmark's JSON line as readable text; any other text unchanged."""
    try:
        record = json.loads(line)
        if record.get("failed"):
            return f"{record['name']:<28} FAILED: {record['failed']}"
        text = f"{record['name']:<28} {record['value']:>14,} {record['unit']}"
        return text + (f"   {record['ratio']:g} x {record['peer']}" if record.get("ratio") else "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return line.rstrip("\n")
