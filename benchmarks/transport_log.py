"""The log of an agent alone: append rate, and restart on 1 GiB of unacked batches.

`transport.log.accept`: samples a second that the log makes durable, four batches of 1,500 a call, 16 callers, every
call fsynced. `transport.restart.accept`: from the start of a new process until a new batch is durable.
`transport.restart.scan`: until the whole log has been read, checked and handed to the sender.
`transport.restart.resend`: until Kafka has all of it, by the collectors of a running stack (`resend`, called by
benchmarks/transport.py). The files are dropped from the page cache before each start.

python -m benchmarks.transport_log [--bytes 1073741824] [--folder DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from artimon.model.batch import PollResult
from artimon.model.clock import SYSTEM_CLOCK
from benchmarks.carrying import bodies
from benchmarks.common import emit
from benchmarks.loads.samples import SERIES_A_SOURCE
from pipeline.wal.log import WriteAheadLog
from pipeline.wal.state_records import LogPosition

GIB = 1024**3
AGENT = "restarted"
LANES = 4
_DIFFERENT = 2_000
"""Number of encoded bodies; the log holds each several times, under different identities."""
_CALLERS = 16
_AHEAD = 64
_DEADLINE_S = 300.0


def fill(data: Path, prepared: bodies.Bodies, size: int) -> int:
    """Fill a log of about `size` bytes in `data`, as a killed agent leaves it; return the number of batches."""
    log = WriteAheadLog(data / "log", AGENT, LANES, lambda _placed: None, quota_bytes=8 * size)
    numbers, written, count = [0] * LANES, 0, 0
    flying: deque[Future[list[LogPosition]]] = deque()
    while written < size:
        entries = []
        for _ in range(_AHEAD):
            entries.append(bodies.entry(bodies.readdress(prepared[count % len(prepared)], AGENT, log.epoch, numbers)))
            written, count = written + len(entries[-1].payload), count + 1
        flying.append(log.append(entries))
        if len(flying) > 8:
            flying.popleft().result(60)
    for future in flying:
        future.result(60)
    log.close(60)
    return count


def accept(folder: Path, prepared: bodies.Bodies, seconds: float = 5.0) -> tuple[float, float]:
    """Append from callers that each wait until their batches are durable; return (samples, fsyncs) a second."""
    log = WriteAheadLog(folder, AGENT, _CALLERS, lambda _placed: None, quota_bytes=64 * GIB)
    stop = time.monotonic() + seconds
    done = [0] * _CALLERS

    def call(lane: int) -> None:
        sequence = 0
        while time.monotonic() < stop:
            entries = []
            for _ in range(4):  # as many as a poller of many sources appends at once
                data = prepared[(lane * 97 + sequence) % len(prepared)]
                numbers = [sequence] * _CALLERS
                entries.append(bodies.entry(bodies.readdress(data, AGENT, log.epoch, numbers)))
                sequence += 1
            log.append(entries).result(60)
            done[lane] += len(entries)

    threads = [threading.Thread(target=call, args=(lane,)) for lane in range(_CALLERS)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 60)
    took = time.monotonic() - began
    log.close(60)
    return sum(done) * SERIES_A_SOURCE / took, log.fsyncs / took


def restart(data: Path, zookeeper: str = "") -> dict[str, float]:
    """Start a process on the log in `data`; return the seconds until it accepted a batch, had read the log, and (with
    `zookeeper`) had it all in Kafka."""
    drop_cache(data / "log")
    began = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.transport_log", "--child", str(data), "--zookeeper", zookeeper]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    if outcome.returncode:
        raise RuntimeError(f"the restarted process failed: {outcome.stderr[-2000:]}")
    told: dict[str, float] = json.loads(outcome.stdout.splitlines()[-1])
    return {name: at - began if name != "batches" else at for name, at in told.items()}


def resend(data: Path, zookeeper: str) -> tuple[float, int]:
    """Start an agent on `data`; return the seconds until Kafka has its whole log, and the number of batches. Collectors
    are registered in `zookeeper`."""
    told = restart(data, zookeeper)
    return told["sent"], int(told["batches"])


def drop_cache(folder: Path) -> None:
    """Drop the files from the page cache, so that the next reader reads from the disk."""
    for path in folder.glob("*.wal"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _child(data: Path, zookeeper: str) -> None:
    """Run a restarted agent and print its times, which are monotonic and valid across processes of the machine."""
    from pipeline.flows.runtime.agent_transport import Agent, AgentConfig

    config = AgentConfig(AGENT, data, zookeeper or "127.0.0.1:1", level="kafka", lanes=LANES, backlog_rate=0)
    agent = Agent(config)
    agent.start()
    now_ms = SYSTEM_CLOCK.now_ms()
    samples = bodies.Counters(0, np.random.default_rng(1), now_ms).poll(now_ms)
    agent.wal_sink.accept_now([PollResult("restarted/here/0", bytes(16), now_ms, now_ms, samples)])
    told: dict[str, Any] = {"accept": time.monotonic()}
    _until(lambda: not agent.figures()["recovering"])
    told["scan"] = time.monotonic()
    figures = agent.figures()
    told["batches"] = figures["pending_batches"] + figures["acked_batches"] - 1  # some may be acked already
    if zookeeper:
        _until(lambda: agent.figures()["pending_batches"] == 0)
        told["sent"] = time.monotonic()
    print(json.dumps(told), flush=True)
    if agent.failing:
        raise SystemExit(agent.failing)
    os._exit(0)  # like a kill: the next measurement is another restart


def _until(done: Any) -> None:
    until = time.monotonic() + _DEADLINE_S
    while not done():
        if time.monotonic() > until:
            raise SystemExit(f"not within {_DEADLINE_S:.0f} s")
        time.sleep(0.01)


def report(folder: Path, size: int, rounds: int = 3) -> Path:
    """Measure and print all but `resend`; return the data folder with the log for `resend`."""
    prepared = bodies.make(folder / "bodies", _DIFFERENT)
    samples, fsyncs = accept(folder / "accept" / "log", prepared)
    emit("transport.log.accept", samples, f"samples/s, {fsyncs:.0f} fsyncs/s, {_CALLERS} callers that wait")
    data = folder / "data"
    batches = fill(data, prepared, size)
    told = [restart(data) for _ in range(rounds)]
    unit = f"s from the start of the process, {size / GIB:.1f} GiB, {batches:,} batches, page cache dropped"
    emit("transport.restart.accept", min(one["accept"] for one in told), unit)
    emit("transport.restart.scan", min(one["scan"] for one in told), unit)
    return data


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; the module describes it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--bytes", type=int, default=GIB)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--zookeeper", default="", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.child:
        _child(chosen.child, chosen.zookeeper)
        return
    with tempfile.TemporaryDirectory(prefix="artimon-log-", dir=chosen.folder) as name:
        report(Path(name), chosen.bytes)


if __name__ == "__main__":
    main()
