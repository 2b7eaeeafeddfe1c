"""Archive of Python packages for containers of YARN: what the Spark application imports, without Spark itself.

YARN unpacks it beside each container, where PYTHONPATH names it; the interpreter must be on every node."""

from __future__ import annotations

import hashlib
import sysconfig
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from scripts.pin import closure, installed

ROOT = Path(__file__).resolve().parents[2]
OURS = ("artimon", "bookkeeper", "pipeline", "sources", "varstore", "query_dsl", "alerts")
NOT_NEEDED = frozenset({"pyspark", "py4j", "fastapi", "uvicorn", "rich-toolkit", "pygments", "fonttools", "matplotlib"})
"""Spark brings the first two; the driver serves no pages."""
UNUSED = frozenset({"..", "tests", "include", "src", "__pycache__"})


def needed_distributions() -> list[Distribution]:
    """Return the installed projects that `artimon` requires, directly or not, and its own, for their versions."""
    known = installed()
    names = sorted(name for name in closure(["artimon"]) if name in known and name not in NOT_NEEDED)
    return [distribution(name) for name in (*names, "artimon", "artimon-bookkeeper")]


def cached_archive(cache: Path) -> Path:
    """Return the archive of this checkout in `cache`; writes it if anything has changed since the last time."""
    digest = hashlib.sha256((ROOT / "scripts" / "requirements.lock").read_bytes())
    for source in sorted(_own_files()):
        digest.update(f"{source} {source.stat().st_mtime_ns}\n".encode())
    path = cache / "cluster" / f"environment-{digest.hexdigest()[:16]}.tar.gz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        for older in path.parent.glob("environment-*"):
            older.unlink()
        write_archive(path)
    return path


def write_archive(path: Path) -> None:
    """Write the archive; a reader never sees a part of it."""
    place = Path(sysconfig.get_path("purelib"))
    fresh = path.with_suffix(".new")
    # YARN unpacks with the system's `tar`, but a zip file in its own JVM, which takes minutes
    with tarfile.open(fresh, "w:gz", compresslevel=1) as archive:
        for file in _installed_files(place):
            archive.add(place / file, str(file))
        for source in sorted(_own_files()):
            archive.add(source, str(source.relative_to(ROOT)))
    fresh.replace(path)


def _own_files() -> Iterator[Path]:
    for package in OURS:
        for source in (ROOT / package).rglob("*"):
            if source.is_file() and "__pycache__" not in source.parts:
                yield source


def _installed_files(place: Path) -> Iterator[Path]:
    for found in needed_distributions():
        for entry in found.files or ():
            file = Path(entry)
            if UNUSED.isdisjoint(file.parts) and (place / file).is_file():
                yield file
