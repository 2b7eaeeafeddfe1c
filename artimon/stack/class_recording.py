"""Records the archives of classes (`artimon.runtime.class_archive`) with one short life of a stack."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

from artimon.runtime.class_archive import UNFINISHED, class_path_key
from artimon.runtime.settings import Settings
from artimon.stack.jars import Say, alone, ensure_jars, spark_jars
from artimon.stack.java import Java
from artimon.stack.stack import Stack
from artimon.stack.stack_errors import StackError

PARTS = ("zookeeper", "kafka", "hdfs", "shards", "spark")
JAR_SETS = ("kafka", "hdfs", "spark")
FIRST_PORT = 24000
STOP_S = 55.0
"""Limit of the stop of a server, which writes its archive: 5 to 10 s of a processor."""
KEPT = 3
"""Archives of a server that are kept: checkouts with Python environments of their own have archives of their own."""


def record_classes(place: Settings, java: Java, say: Say) -> None:
    """Record the archives for the class paths of this checkout unless that was tried before.
    Servers start without archives as well, so that a failure is only told. Raises JarsUnresolvedError."""
    folder = place.class_archives
    jars = ensure_jars(place, java, JAR_SETS, say)
    used = [jar for one in (*(jars / name for name in JAR_SETS), spark_jars()) for jar in one.glob("*.jar")]
    tried = folder / f"tried-{class_path_key(place, used)}"
    with alone(folder / "lock"):
        if tried.exists():
            return
        say("recording the classes of the servers, which then start faster (once; about half a minute)")
        try:
            _run_stack(place)
        except StackError as problem:
            say(f"some servers will start more slowly: {problem}")
        for made in folder.glob(f"*{UNFINISHED}"):
            _finish(made, java)
        tried.touch()
        forget_old(folder)


def _run_stack(place: Settings) -> None:
    with tempfile.TemporaryDirectory(prefix="artimon-classes-", ignore_cleanup_errors=True) as data:
        recording = replace(place, recording_classes=True)
        stack = Stack(Path(data), PARTS, base_port=FIRST_PORT, options={"shards": "1"}, settings=recording)
        for part in stack.parts:
            part.stop_s = STOP_S
        with stack:
            stack.stop_part("spark")  # alone, because the limit of the end holds for all parts


def _finish(made: Path, java: Java) -> None:
    """Give an archive its name if a JVM can use it: one that is cut off would crash every server."""
    with made.open("rb") as file:
        os.fsync(file.fileno())
    command = [str(java.program), f"-XX:SharedArchiveFile={made}", "-XX:-CreateCoredumpOnCrash", "-version"]
    with tempfile.TemporaryDirectory() as scratch:  # for the report of a crash
        done = subprocess.run(command, cwd=scratch, capture_output=True, check=False)
    if done.returncode:
        made.unlink()
    else:
        made.replace(made.with_suffix(""))


def forget_old(folder: Path) -> None:
    """Delete all but the newest KEPT archives of each server, and as many marks."""
    seen = Counter[str]()
    for path in sorted(folder.glob("*-*"), key=lambda one: one.stat().st_mtime_ns, reverse=True):
        kind = path.name.partition("-")[0]
        seen[kind] += 1
        if seen[kind] > KEPT:
            path.unlink()
