"""Packages of npm for tests and for the editor of the page, each set pinned by a package-lock.json.

python -m scripts.node_packages FOLDER...

Installs the sets of these folders into the cache folder, once, and prints where. Needs Node.js 20 or newer with npm;
nothing that is shipped does."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from artimon.runtime.settings import child_environment, load
from artimon.stack.jars import alone
from artimon.stack.stack_errors import StackError

STEP_S = 600.0
"""Limit of each step in seconds."""
PINS = ("package.json", "package-lock.json")
OLDEST = 20
"""Major version of Node.js."""


class NodeError(StackError):
    """Node.js is missing or too old, or a step failed."""


def run(command: Sequence[str], folder: Path) -> str:
    """Return the standard output of a step. Raises NodeError."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=child_environment({}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=STEP_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise NodeError(f"{command[0]}: {problem}") from problem
    if done.returncode:
        raise NodeError(f"{command[0]} failed: {done.stderr[-2000:]}")
    return done.stdout


def check_node() -> None:
    """Raise NodeError unless Node.js and npm are here."""
    remedy = f"install Node.js {OLDEST} or newer with npm"
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise NodeError(f"node or npm is not on this machine: {remedy}")
    version = run(["node", "--version"], Path.cwd()).strip()
    if int(version.removeprefix("v").partition(".")[0]) < OLDEST:
        raise NodeError(f"node has the version {version}: {remedy}")


def install(folder: Path) -> None:
    """Install the pinned packages of a folder into it; no script of a package runs. Raises NodeError."""
    run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], folder)


def ensure(source: Path, cache: Path) -> Path:
    """Return a folder with the files of `source` and its packages. Raises NodeError."""
    digest = hashlib.sha256(b"".join((source / name).read_bytes() for name in PINS)).hexdigest()[:16]
    target = cache / "node" / f"{source.name}-{digest}"
    complete = target / ".complete"
    with alone(cache / "node.lock"):  # a run beside this one installs the same
        if not complete.exists():
            check_node()
            shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
        if not complete.exists():
            install(target)
            complete.touch()
    return target


def main() -> int:
    """Exit code: 0 good, 1 a set could not be installed."""
    for name in sys.argv[1:]:
        try:
            print(ensure(Path(name).resolve(), load().cache))
        except NodeError as problem:
            print(f"{name}: {problem}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
