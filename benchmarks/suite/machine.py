"""Machine line of a run: date, commit, processor, memory, versions."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime.settings import load as load_settings
from artimon.stack.java import find_java
from artimon.stack.stack_errors import StackError
from benchmarks.common import machine

ROOT = Path(__file__).parent.parent.parent
MADE = (":!docs/benchmarks.md", ":!docs/benchmarks.jsonl")
"""Files written by a run and its page; they do not make the commit dirty."""
LIBRARIES = (
    *("numpy", "pyarrow", "xxhash", "thriftpy2", "kazoo", "kafka-python", "hdfs-native", "deltalake", "pyspark"),
    *("fastapi", "uvicorn", "prometheus_client", "opentelemetry-sdk", "pandas"),
)


def describe() -> dict[str, Any]:
    """Return the first record of a run."""
    return {
        "name": "machine",
        "date": datetime.fromtimestamp(SYSTEM_CLOCK.now_ms() / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _git("rev-parse", "HEAD") or "unknown",
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no", "--", ".", *MADE)),
        "machine": machine(),
        "java": _java(),
        "libraries": {name: found for name in LIBRARIES if (found := _version(name))},
        "load": load(),
    }


def load() -> float:
    """Return the load average of the last minute."""
    return round(os.getloadavg()[0], 2)


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _java() -> str:
    try:
        return str(find_java(load_settings()).version)
    except StackError as problem:
        return f"none: {problem}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
