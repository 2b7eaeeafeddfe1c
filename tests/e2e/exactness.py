"""Applications of the end-to-end tests, and the equality of their ledger with the stores."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.fingerprint import fingerprint
from artimon.model.grid import DEFAULT_LEVELS, Grid, bucket_end
from artimon.model.labels import parse_canonical
from artimon.runtime.health import read_health
from artimon.runtime.settings import child_environment
from artimon.stack.stack import Stack
from query_dsl import evaluate, parse
from tests.e2e.ledger import Sample, comparable, read_ledger, reconcile
from tests.e2e.stores import held, raw_samples, recompute
from tests.e2e.whole import ROOT
from tests.waiting import eventually
from varstore.cluster.varstore_client import VarstoreClient

SETTLED_MS = 20_000
"""The tests ask about the open bucket, as if it had been settled: nothing is added to it any more."""
NAMES = ("e2e.integer", "e2e.double", "e2e.boolean", "e2e.string")


@contextmanager
def application(
    stack: Stack, script: str, *arguments: str, root: Path = ROOT, context: str = ""
) -> Iterator[subprocess.Popen[bytes]]:
    """A program of this folder that finds the stack by its environment; killed if the test does not end it.

    `root`: the checkout whose program and bookkeeper run. `context`: default the program's name."""
    places = {"ARTIMON_ZOOKEEPER": stack.zookeeper, "ARTIMON_DROPIN": str(stack.data / "dropin")}
    environment = child_environment(
        {**places, "ARTIMON_CONTEXT": context or Path(script).stem, "PYTHONPATH": str(root)}
    )
    program = root / "tests" / "e2e" / script
    process = subprocess.Popen([sys.executable, str(program), *arguments], env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def polls_done(stack: Stack) -> int:
    health = read_health(stack.context.health("agent"))
    return int(health.figures.get("accepted_batches", 0)) if health else 0


def let_it_poll(stack: Stack, batches: int = 6) -> None:
    """Wait until the agent has accepted some more batches."""
    before = polls_done(stack)
    eventually(lambda: polls_done(stack) > before + batches or polls_done(stack) < before)


def acks_flow(stack: Stack) -> bool:
    """No batch waits for its ack for longer than a few appends of the raw table take."""
    health = read_health(stack.context.health("agent"))
    return health is not None and health.figures["oldest_unacked_ms"] < 30_000


def final_values(store: VarstoreClient) -> dict[tuple[str, str], tuple[str, str]]:
    """The newest value of each of the application's series, as the query language gives them."""
    now = bucket_end(SYSTEM_CLOCK.now_ms(), 60_000)
    answered = {}
    for name in NAMES:
        matrix = evaluate(parse(f"fetch('{name}').between({now - 900_000}, {now})"), store, now + SETTLED_MS)
        for labels, _end, value in matrix.points():
            if value is not None:
                answered[name, labels["i"]] = comparable(value)  # ascending in time: the last one stays
    return answered


def told(values: dict[str, list[object]]) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the application's own record."""
    found = {}
    for text, (type_, final) in values.items():
        name, labels = parse_canonical(text)
        found[name, labels["i"]] = (str(type_), str(final))
    return found


def assert_exact(stack: Stack, store: VarstoreClient, began: int) -> None:
    """Each sample of the applications' ledger is once in the raw table and in the buckets of every level."""
    file = stack.data / "ledger.jsonl"
    ours = {fingerprint(text) for text in read_ledger(file, ()).texts if parse_canonical(text)[0] in NAMES}
    found: list[Counter[Sample]] = []

    def wrong(*chosen: set[int]) -> list[Sample]:
        """Samples of ours of which the ledger and the table have different numbers; both are then in `found`."""
        ledger = read_ledger(file, *chosen)
        stored = raw_samples(stack.hdfs, *chosen)
        found[:] = reconcile(ledger, stored), stored
        return [s for s in found[0].keys() | found[1].keys() if s.fingerprint in ours and found[0][s] != found[1][s]]

    # first without the variables of all processes, which take seconds; a poll of them all is there or not
    eventually(lambda: not wrong(ours) and not wrong(), pause=2)
    expected, stored = found
    assert sum(n for s, n in stored.items() if s.fingerprint in ours) > 200 * 5
    assert max(stored.values()) == 1
    of_ours = Counter({s: n for s, n in expected.items() if s.fingerprint in ours})
    for level in DEFAULT_LEVELS:
        end = bucket_end(SYSTEM_CLOCK.now_ms(), level.step_ms)
        n = (end - bucket_end(began, level.step_ms)) // level.step_ms + 1
        in_memory = {k: v for name in NAMES for k, v in held(store, name, Grid(end, level.step_ms, n)).items()}
        assert in_memory == recompute(of_ours, level.step_ms), f"level {level.step_s} s"
