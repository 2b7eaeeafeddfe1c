"""Errors of setting up, starting and stopping the servers of one machine. Each text names the remedy."""

from __future__ import annotations

from pathlib import Path


class StackError(Exception):
    """Base of all errors of the stack; `artimon` prints its text and exits 1 or 2."""


class JavaMissingError(StackError):
    """No suitable Java: the servers need a full Java 17 or later, with the module jdk.incubator.vector."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found

    def __str__(self) -> str:
        return (
            f"Java 17 or later with the module jdk.incubator.vector is needed; found: {self.found}. "
            "Install a full one: `apt-get install openjdk-17-jdk-headless` (Debian, Ubuntu), "
            "`dnf install java-17-openjdk-devel` (Fedora), `brew install openjdk@17` (macOS), "
            "or set JAVA_HOME to where one is."
        )


class JarMismatchError(StackError):
    """A jar does not have the digest that jars.lock pins."""

    def __init__(self, path: Path, expected: str, actual: str) -> None:
        super().__init__(path, expected, actual)
        self.path, self.expected, self.actual = path, expected, actual

    def __str__(self) -> str:
        return (
            f"{self.path} has sha256 {self.actual}, jars.lock pins {self.expected}: the file is damaged or not the "
            "one that was reviewed. Delete it and run ./scripts/setup; if it recurs, do not trust the repository."
        )


class JarsUnresolvedError(StackError):
    """The jars could not be retrieved."""

    def __init__(self, missing: list[str], log: Path, detail: str) -> None:
        super().__init__(missing, log, detail)
        self.missing, self.log, self.detail = missing, log, detail

    def __str__(self) -> str:
        names = ", ".join(self.missing[:5]) + (" ..." if len(self.missing) > 5 else "")
        return (
            f"{len(self.missing)} jars could not be retrieved ({names}): {self.detail}. "
            f"See {self.log}; check the network, then run ./scripts/setup again (retrieved jars are kept)."
        )


class AlreadyRunningError(StackError):
    """Another stack holds the data folder."""

    def __init__(self, data: Path, pid: int | None) -> None:
        super().__init__(data, pid)
        self.data, self.pid = data, pid

    def __str__(self) -> str:
        who = f" (process {self.pid})" if self.pid else ""
        stop = f"stop it with `artimon down --data {self.data}`"
        return f"a stack already runs on {self.data}{who}: {stop}, or give another --data"


class NoFreePortError(StackError):
    """No free port in the range above the preferred one."""

    def __init__(self, wished: int, tried: int) -> None:
        super().__init__(wished, tried)
        self.wished, self.tried = wished, tried

    def __str__(self) -> str:
        return f"no free port in {self.wished}..{self.wished + self.tried - 1} on 127.0.0.1: stop what holds them"


class NotHealthyError(StackError):
    """Parts that did not become healthy in time."""

    def __init__(self, waited_s: float, parts: dict[str, str]) -> None:
        super().__init__(waited_s, parts)
        self.waited_s, self.parts = waited_s, parts

    def __str__(self) -> str:
        what = "; ".join(f"{name}: {detail}" for name, detail in self.parts.items())
        return f"after {self.waited_s:.0f} s not healthy: {what}. See `artimon logs PART` and `artimon doctor`"


class UnusableFolderError(StackError):
    """The data folder cannot be made or written."""

    def __init__(self, data: Path, problem: OSError) -> None:
        super().__init__(data, problem)
        self.data, self.problem = data, problem

    def __str__(self) -> str:
        return f"{self.data} cannot be the data folder: {self.problem.strerror}; name another with --data"


class NotRunningError(StackError):
    """No stack runs on the data folder."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.data = data

    def __str__(self) -> str:
        return (
            f"no stack runs on {self.data}: start one with `artimon up --data {self.data}`; "
            "`artimon status --cluster` shows the processes of a cluster"
        )


class UnknownPartError(StackError):
    """The name of a part is unknown."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(name, known)
        self.name, self.known = name, known

    def __str__(self) -> str:
        return f"unknown part {self.name!r}: known parts are {', '.join(self.known)}"


class ExampleMissingError(StackError):
    """A program of the repository's examples is missing."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return (
            f"{self.path} does not exist: the examples come with the repository, not with the installed package; "
            "run `artimon up` from a clone, or leave out the group `examples`"
        )
