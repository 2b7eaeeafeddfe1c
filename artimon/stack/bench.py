"""`artimon bench`: runs a module of the repository's benchmarks/ in a process of its own and shows its lines."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from artimon.stack.errors import StackError


def known_benchmarks() -> list[str]:
    """Names of the benchmarks of this repository. Raises StackError where there is no repository."""
    spec = importlib.util.find_spec("benchmarks")
    if spec is None or not spec.submodule_search_locations:
        raise StackError("the benchmarks come with the repository, not with the installed package: run it from a clone")
    folder = Path(next(iter(spec.submodule_search_locations)))
    return sorted(path.stem for path in folder.glob("*.py") if path.stem not in ("__init__", "common"))


def run_benchmark(name: str, arguments: Sequence[str], as_json: bool, say: Callable[[str], None]) -> int:
    """Run one, its lines as JSON or for people; returns its exit code, 2 if there is no such benchmark."""
    known = known_benchmarks()
    if name not in known:
        say(f"artimon: there is no benchmark {name!r}: known are {', '.join(known) or 'none'}")
        return 2
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(line.rstrip("\n") if as_json else readable(line), flush=True)
    return process.returncode


def readable(line: str) -> str:
    """A benchmark's JSON line for people; any other text as it is."""
    try:
        record = json.loads(line)
        if record.get("failed"):
            return f"{record['name']:<28} FAILED: {record['failed']}"
        text = f"{record['name']:<28} {record['value']:>14,} {record['unit']}"
        return text + (f"   {record['ratio']:g} x {record['peer']}" if record.get("ratio") else "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return line.rstrip("\n")
