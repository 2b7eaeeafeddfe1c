"""Parts made of small Python programs, for tests of the supervisor that need no server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from artimon.runtime.settings import load
from artimon.stack.child_process import ProcessCommand
from artimon.stack.java import Java
from artimon.stack.stack_part import StackContext, StackPart

SLEEP = "import signal; signal.pause()"
FORKING = """
import os, signal, sys
if os.fork() == 0:
    os.setpgid(0, 0)
    open(sys.argv[1], "w").write(str(os.getpid()))
signal.pause()
"""
DEADLINE_S = 20.0


class Fake(StackPart):
    """Runs `program` in Python; healthy when `problem` returns ""."""

    def __init__(
        self,
        name: str,
        program: str = SLEEP,
        *arguments: str,
        after: tuple[str, ...] = (),
        layer: int = 0,
        prepared: tuple[str, ...] = (),
        problem: Callable[[], str] = lambda: "",
        limits: Mapping[str, float] | None = None,
    ) -> None:
        self.name, self.starts_after, self.layer = name, after, layer
        self._program, self._arguments, self._prepared, self._problem = program, arguments, prepared, problem
        for limit, value in (limits or {}).items():
            setattr(self, limit, value)

    def prepare(self, context: StackContext) -> list[ProcessCommand]:
        return [ProcessCommand([sys.executable, "-c", program]) for program in self._prepared]

    def command(self, context: StackContext) -> ProcessCommand:
        return ProcessCommand([sys.executable, "-I", "-S", "-c", self._program, *self._arguments])

    def check(self, context: StackContext) -> str:
        return self._problem()


def make_context(data: Path) -> StackContext:
    """A context for parts that need nothing of it but folders."""
    return StackContext(
        data, {}, load({"HOME": str(data)}), Java(Path("/bin/false"), 17), data / "jars", data / "spark"
    )


def gone(pid: int) -> bool:
    """True when the process has ended, collected by its parent or not."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
