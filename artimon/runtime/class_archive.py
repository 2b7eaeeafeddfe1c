"""Archives of the classes that a JVM loads (class data sharing): with one, a server starts with two thirds of the work.

An archive fits one Java and one class path; the JVM ignores another one. `artimon.stack.class_recording` records them.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path

from artimon.runtime.settings import Settings

UNFINISHED = ".new"
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")  # the JVM names each class that it leaves out


def archive_flags(place: Settings, name: str, jars: Iterable[Path]) -> list[str]:
    """Return the flags of a JVM whose class path has `jars`: use its archive, or record it; none if it is missing."""
    path = place.class_archives / f"{name}-{class_path_key(place, jars)}.jsa"
    if place.recording_classes:
        return [] if path.exists() else [f"-XX:ArchiveClassesAtExit={path}{UNFINISHED}", *_QUIET]
    return [f"-XX:SharedArchiveFile={path}", *_QUIET] if path.exists() else []


def class_path_key(place: Settings, jars: Iterable[Path]) -> str:
    """Return a digest of the Java in use and of the paths, sizes and times of `jars`: an archive fits these alone."""
    digest = hashlib.sha256(_java_release(place).encode())
    for jar in sorted(jars):
        state = jar.stat() if jar.exists() else None
        digest.update(f"{jar}\n{f'{state.st_size} {state.st_mtime_ns}' if state else 'missing'}\n".encode())
    return digest.hexdigest()[:16]


def _java_release(place: Settings) -> str:
    program = place.java_home / "bin" / "java" if place.java_home else Path(shutil.which("java") or "java")
    release = program.resolve().parent.parent / "release"
    return f"{release}\n{release.read_text()}" if release.is_file() else str(program)
