"""Oracle for discovery by Kubernetes and Consul: Prometheus' own packages, built into one small program.

`oracle/` imports discovery, relabelling and targets of the version of Prometheus that its go.mod names.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from artimon.runtime import settings

SOURCES = Path(__file__).parent / "oracle"
BUILD_S = 1_800.0


def built_oracle() -> Path:
    """Return the program; builds it once for each content of its sources. Without Go the test is skipped, or fails
    under CI."""
    go = shutil.which("go")
    if go is None:
        text = "go is not on this machine: install Go to compare discovery with Prometheus' own packages"
        if os.environ.get("CI"):
            pytest.fail(text)
        pytest.skip(text)
    files = [SOURCES / name for name in ("main.go", "go.mod", "go.sum")]
    digest = hashlib.sha256(b"\n".join(file.read_bytes() for file in files)).hexdigest()[:16]
    program = settings.load().cache / "discovery-oracle" / digest
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_suffix(f".{os.getpid()}")
        command = [go, "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-o", str(unfinished), "."]
        made = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, timeout=BUILD_S)
        assert made.returncode == 0, f"the oracle of {SOURCES} was not built:\n{made.stderr}"
        unfinished.rename(program)
    return program


@contextlib.contextmanager
def running_oracle(configuration: Path, log: Path) -> Iterator[Callable[[], Any]]:
    """Run the oracle; yields a function that returns its last answer."""
    answers: list[Any] = [{"activeTargets": [], "droppedTargets": [], "failures": []}]
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [built_oracle(), configuration], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        ) as process,
    ):
        assert process.stdin is not None
        output = process.stdout
        assert output is not None

        def read() -> None:
            for line in output:
                answers[0] = json.loads(line)

        reader = threading.Thread(target=read, name="oracle", daemon=True)
        reader.start()

        def last() -> Any:
            assert process.poll() is None, f"the oracle ended with {process.returncode}: {log.read_text()[-2000:]}"
            return answers[0]

        try:
            yield last
        finally:
            process.stdin.close()
            process.wait(timeout=60)
            reader.join(timeout=60)
