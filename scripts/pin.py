"""The work of ./scripts/lock: asks pip which file each platform would get, and writes down their hashes."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.requirements import Requirement

FOLDER = Path(__file__).resolve().parent
ROOTS = ("artimon[grpc,notebook]", "artimon-bookkeeper")
"""Needed to run: these and what they require. The other packages are those of the tests."""
BUILD = ("editables", "hatchling", "packaging", "pathspec", "pluggy", "setuptools", "trove-classifiers", "wheel")
SOURCE_ONLY = ("pyspark",)
GLIBC = ("17", "24", "26", "27", "28", "31", "34")
PLATFORMS = {
    "Linux x86_64": ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"]
    + [f"manylinux_2_{minor}_x86_64" for minor in GLIBC],
    "Linux aarch64": ["manylinux2014_aarch64"] + [f"manylinux_2_{minor}_aarch64" for minor in GLIBC],
    "macOS arm64": [f"macosx_{major}_0_{kind}" for major in range(15, 10, -1) for kind in ("arm64", "universal2")],
}
PYTHONS = ("3.11", "3.12")
HEAD = """\
# {what} Hashes of the files that fit CPython 3.11 and 3.12
# on Linux (x86_64, aarch64) and macOS (arm64). ./scripts/lock makes this file anew.
"""


def normal(name: str) -> str:
    """The one spelling of a project's name."""
    return name.lower().replace("_", "-").replace(".", "-")


def pip(*arguments: str) -> str:
    """Standard output of a pip command. Raises CalledProcessError; pip has said why."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def installed() -> dict[str, str]:
    """Normal name -> `Name==version` of what the environment holds, our own two left out."""
    lines = pip("list", "--format=json", "--exclude-editable")
    pins = {normal(entry["name"]): f"{entry['name']}=={entry['version']}" for entry in json.loads(lines)}
    pins.pop("pip", None)
    return pins


def closure(roots: Iterable[str]) -> set[str]:
    """Normal names of these projects and of all that they require here."""
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [Requirement(text) for text in roots]
    while waiting:
        wanted = waiting.pop()
        key = normal(wanted.name), frozenset(wanted.extras)
        if key in seen:
            continue
        seen.add(key)
        extras = ("", *wanted.extras)
        needs = map(Requirement, importlib.metadata.requires(wanted.name) or ())
        waiting += [n for n in needs if n.marker is None or any(n.marker.evaluate({"extra": e}) for e in extras)]
    return {name for name, _ in seen}


def file_hashes(requirements: Iterable[str], platform: Sequence[str] = (), python: str = "") -> dict[str, str]:
    """Normal name -> sha256 of the file that pip would install there; without `platform`, here."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        where = [word for tag in platform for word in ("--platform", tag)]
        if platform:
            where += ["--only-binary=:all:", "--target", folder, "--implementation", "cp", "--python-version", python]
        pip(
            "install",
            "--dry-run",
            "--quiet",
            "--ignore-installed",
            "--no-deps",
            "--report",
            str(report),
            *where,
            *requirements,
        )
        entries = json.loads(report.read_text())["install"]
    return {
        normal(entry["metadata"]["name"]): entry["download_info"]["archive_info"]["hashes"]["sha256"]
        for entry in entries
    }


def write(path: Path, what: str, pins: Iterable[str], hashes: dict[str, set[str]]) -> None:
    """One lock file, sorted."""
    lines = [HEAD.format(what=what)]
    for pin in sorted(pins, key=str.lower):
        found = sorted(hashes[normal(pin.partition("==")[0])])
        lines.append(" \\\n".join([pin, *(f"    --hash=sha256:{digest}" for digest in found)]) + "\n")
    path.write_text("".join(lines))


def main() -> None:
    """Pins, then hashes platform by platform, then the files."""
    pins = installed()
    missing = [name for name in BUILD if name not in pins]
    if missing:
        sys.exit(f"lock: the environment lacks {', '.join(missing)}: make it with ./scripts/setup first")
    hashes: dict[str, set[str]] = defaultdict(set)
    binary = [pin for name, pin in pins.items() if name not in SOURCE_ONLY]
    for name, tags in PLATFORMS.items():
        for python in PYTHONS:
            print(f"lock: {name}, Python {python}", file=sys.stderr)
            for project, digest in file_hashes(binary, tags, python).items():
                hashes[project].add(digest)
    for project, digest in file_hashes(pins[name] for name in SOURCE_ONLY).items():
        hashes[project].add(digest)
    build = {name: pin for name, pin in pins.items() if name in BUILD}
    write(FOLDER / "build.lock", "What builds packages, installed first.", build.values(), hashes)
    needed = closure(ROOTS) - build.keys()
    running = [pin for name, pin in pins.items() if name in needed]
    testing = [pin for name, pin in pins.items() if name not in needed and name not in build]
    write(FOLDER / "requirements.lock", "Everything the platform runs with.", running, hashes)
    write(FOLDER / "tests.lock", "What its tests, documents and checks run with beside that.", testing, hashes)


if __name__ == "__main__":
    main()
