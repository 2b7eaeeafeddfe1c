"""Start, query and stop a peer's server on this machine."""

from __future__ import annotations

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from artimon.runtime.settings import child_environment
from benchmarks.peers.series import PeerFailed
from scripts.programs import Program

START_S = 60.0
STOP_S = 120.0
ASK_S = 600.0
PART = 1 << 20


@contextmanager
def serving(program: Program, arguments: Sequence[str], health: str, log: Path) -> Iterator[None]:
    """Run the server, healthy on entry and stopped by SIGTERM at the end. Raises PeerFailed."""
    environment = child_environment(program.environment)
    with (
        log.open("ab") as out,
        subprocess.Popen([program.path, *arguments], env=environment, stdout=out, stderr=out) as child,
    ):
        try:
            _wait(child, health, log)
            yield
        finally:
            child.terminate()
            try:
                child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                child.kill()


def ask(url: str, body: bytes | Iterable[bytes] | None = None) -> bytes:
    """Return the whole answer. Raises PeerFailed."""
    try:
        with _open(url, body) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        raise PeerFailed(f"{url} answered {error.code}: {error.read(500)!r}") from error
    except OSError as error:
        raise PeerFailed(f"{url}: {error}") from error


def drain(url: str) -> tuple[float, list[bytes]]:
    """Return the seconds to the last byte of an answer, and the answer in parts."""
    began = time.perf_counter()
    parts = []
    try:
        with _open(url, None) as answer:
            while part := answer.read(PART):
                parts.append(part)
    except OSError as error:
        raise PeerFailed(f"{url}: {error}") from error
    return time.perf_counter() - began, parts


def run(program: Program, arguments: Sequence[str], timeout_s: float = 1_800.0) -> str:
    """Run a program to its end; return its standard output. Raises PeerFailed."""
    done = subprocess.run(
        [program.path, *arguments],
        env=child_environment(program.environment),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        raise PeerFailed(f"{program.path.name} {arguments[0]} ended with {done.returncode}: {done.stderr[-500:]}")
    return done.stdout + done.stderr


def _open(url: str, body: bytes | Iterable[bytes] | None) -> Any:
    return urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=ASK_S)


def _wait(child: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + START_S
    while True:
        if child.poll() is not None:
            raise PeerFailed(f"the server ended with {child.returncode}, see {log}: {log.read_text()[-500:]}")
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError as error:
            if time.monotonic() > until:
                raise PeerFailed(f"{url} does not answer within {START_S:.0f} s: {error}") from error
        time.sleep(0.1)
