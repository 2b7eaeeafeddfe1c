"""The version before this one, from the history of the repository, and parts of a stack that run it."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from functools import cache
from pathlib import Path

from artimon.stack.artimon_parts import ArtimonPart
from artimon.stack.child_process import ProcessCommand
from artimon.stack.stack_part import StackContext, StackPart

ROOT = Path(__file__).resolve().parents[2]


class MissingVersionError(RuntimeError):
    """The repository does not have the commit, as after a shallow clone."""


def available_version(commit: str) -> str:
    """Return the commit, "" if the repository does not have it."""
    command = ["git", "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}"]
    return commit if subprocess.run(command, capture_output=True, check=False).returncode == 0 else ""


def pack_version(commit: str, archive: Path, *paths: str) -> None:
    """Write the files of a commit, or only those below `paths`, into a tar file. Raises MissingVersionError."""
    command = ["git", "-C", str(ROOT), "archive", "--output", str(archive), commit, *paths]
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode:
        raise MissingVersionError(
            f"no checkout of {commit} ({made.stderr.strip()}): clone the repository with its history"
        )


def unpack_version(archive: Path, folder: Path) -> None:
    """Unpack such a file."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")


class RollingPart(StackPart):
    """A part of ours that runs the version before until it is `upgraded` and restarted."""

    def __init__(self, part: ArtimonPart, before: Path) -> None:
        """`before`: folder of the version before."""
        self._part, self._before = part, before
        self.upgraded = False
        self.name, self.starts_after, self.ports, self.layer = part.name, part.starts_after, part.ports, part.layer
        self.jar_sets, self.memory_mb, self.stop_s = part.jar_sets, part.memory_mb, part.stop_s

    def prepare(self, context: StackContext) -> list[ProcessCommand]:
        return self._part.prepare(context)

    def command(self, context: StackContext) -> ProcessCommand:
        made = self._part.command(context)
        if self.upgraded:
            return made
        return ProcessCommand(self._known(made.argv, context), {**made.env, "PYTHONPATH": str(self._before)})

    def _known(self, argv: list[str], context: StackContext) -> list[str]:
        """Leave out the options that the version before does not know."""
        name = self._part.arguments(context)[0]
        if name.startswith("-"):  # no command of `artimon`
            return argv
        at = argv.index(name) + 1
        return [*argv[:at], *known_options(self._before, name, argv[at:])]

    def check(self, context: StackContext) -> str:
        return self._part.check(context)

    def addresses(self, context: StackContext) -> dict[str, str]:
        return self._part.addresses(context)


def known_options(root: Path, command: str, options: list[str]) -> list[str]:
    """Leave out what a version does not know; every option of a part has one value or none."""
    known = names_of_options(root, command)
    kept: list[str] = []
    skipped = False
    for word in options:
        if word.startswith("--"):
            skipped = word not in known
        if not skipped:
            kept.append(word)
    return kept


@cache
def names_of_options(root: Path, command: str) -> frozenset[str]:
    """Names of the options in a version's own help, and that of every process of ours."""
    argv = [sys.executable, "-P", "-m", "artimon.cli", command, "--help"]
    told = subprocess.run(argv, env={"PYTHONPATH": str(root), "COLUMNS": "200"}, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    return frozenset(re.findall(r"--[a-z][a-z0-9-]*", told.stdout)) | {"--health"}
