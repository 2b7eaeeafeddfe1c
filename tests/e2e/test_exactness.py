"""Exact through kills: ledger of the test = raw table = buckets, and the query gives the application's own values."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.fingerprint import fingerprint
from artimon.model.grid import bucket_end
from artimon.model.labels import parse_canonical
from artimon.model.select import Matcher
from artimon.stack.stack import Stack
from query_dsl import evaluate, parse
from query_dsl.tree.query_errors import QueryError
from tests.e2e.exactness import SETTLED_MS, acks_flow, application, assert_exact, final_values, let_it_poll, told
from tests.e2e.ledger import read_ledger
from tests.e2e.stores import raw_samples
from tests.waiting import eventually
from varstore.cluster.varstore_client import VarstoreClient

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]
RESTARTS = 2


def disturb(stack: Stack) -> list[Callable[[], object]]:
    """The faults, in their order."""

    def kill(part: str) -> None:
        stack.kill(part, signal.SIGKILL)
        stack.wait_healthy(120, [part])

    def delete_checkpoints() -> None:
        for folder in (stack.data / "spark" / "checkpoints").iterdir():
            shutil.rmtree(folder, ignore_errors=True)

    return [
        lambda: kill("agent"),
        lambda: kill("collector-0"),
        lambda: kill("spark"),
        delete_checkpoints,
        lambda: kill("shard-0"),
    ]


def test_nothing_lost_nothing_twice_through_kills_of_every_role(
    whole_stack: Stack, store: VarstoreClient, tmp_path: Path
) -> None:
    final = tmp_path / "final.json"
    began = SYSTEM_CLOCK.now_ms()
    with application(whole_stack, "application.py", str(final), "1") as process:
        eventually(lambda: "e2e.string" in store.names())
        for fault in disturb(whole_stack):
            let_it_poll(whole_stack)
            fault()
        process.send_signal(signal.SIGUSR1)
        eventually(final.exists)
        values = json.loads(final.read_text())
        assert len(values) == 200
        eventually(lambda: final_values(store) == told(values), pause=1)
        assert final_values(store) == told(values)
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    assert_exact(whole_stack, store, began)


@pytest.mark.timeout(1_200)
def test_workers_that_restart_keep_their_series_and_their_increase(
    whole_stack: Stack, store: VarstoreClient, tmp_path: Path
) -> None:
    ledger = tmp_path / "added"
    ledger.touch()
    began = SYSTEM_CLOCK.now_ms()

    def alive() -> list[float]:
        now = bucket_end(SYSTEM_CLOCK.now_ms(), 60_000)
        matrix = evaluate(
            parse(f"fetch('prefork.alive').between({now - 600_000}, {now}).sum(by=[])"), store, now + SETTLED_MS
        )
        return [value for _labels, _end, value in matrix.points() if isinstance(value, float)]

    seen: list[float] = []

    def all_alive() -> bool:
        seen.extend(alive())
        return 4 in seen

    with application(whole_stack, "prefork.py", str(ledger)) as master:
        eventually(lambda: len(store.find(matchers("prefork.done"))) == 4)
        eventually(all_alive, "the four workers are alive in one answer")
        for restart in range(1, RESTARTS + 1):
            let_it_poll(whole_stack, 3)
            master.send_signal(signal.SIGHUP)
            # each worker may wait up to 100 s for its last poll
            eventually(partial(_has_lines, ledger, 4 * restart), seconds=450)
            seen.extend(eventually(alive))
        let_it_poll(whole_stack, 3)
        master.send_signal(signal.SIGTERM)
        master.wait(450)
    added = sum(map(int, ledger.read_text().split()))
    assert len(ledger.read_text().split()) == 4 * (RESTARTS + 1)

    def increase() -> object:
        now = bucket_end(SYSTEM_CLOCK.now_ms(), 60_000)
        window = (now - bucket_end(began, 60_000)) // 60_000 + 2
        text = f"fetch('prefork.done').between({now - 60_000}, {now}).increase('{window}m').sum(by=[])"
        return [value for _labels, _end, value in evaluate(parse(text), store, now + SETTLED_MS).points()]

    try:
        eventually(lambda: increase() == [added], pause=1)
    except AssertionError:
        raise AssertionError(f"increase {increase()}, added {[added]}, lines {ledger.read_text().split()}") from None
    assert len(store.find(matchers("prefork.done"))) == 4
    assert len(store.find(matchers("prefork.alive"))) == 4
    assert max(seen) == 4, "a gauge counted for a process and its successor at once"


def test_what_was_counted_while_the_agent_was_away_is_in_table_and_answers(
    whole_stack: Stack, store: VarstoreClient
) -> None:
    """131 adds after the last poll; the program ends in order before the agent is back, and the next one is there."""
    began, folder = SYSTEM_CLOCK.now_ms(), whole_stack.data / "dropin" / "final"

    def increase() -> object:
        now = bucket_end(SYSTEM_CLOCK.now_ms(), 60_000)
        window = (now - bucket_end(began, 60_000)) // 60_000 + 2
        text = f"fetch('away.done').between({now - 60_000}, {now}).increase('{window}m').sum(by=[])"
        try:
            return [value for _labels, _end, value in evaluate(parse(text), store, now + SETTLED_MS).points()]
        except QueryError:  # shards that are late on a busy machine
            return None

    with application(whole_stack, "away.py") as process:
        eventually(lambda: increase() == [1], pause=1)
        whole_stack.stop_part("agent")
        process.send_signal(signal.SIGUSR1)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        assert len(list(folder.glob("*.final"))) == 1
    with application(whole_stack, "away.py"):
        whole_stack.start_part("agent")
        whole_stack.wait_healthy(120, ["agent"])
        eventually(lambda: increase() == [133], pause=1)
    assert list(folder.glob("*.final")) == []
    (print_,) = (
        fingerprint(text)
        for text in read_ledger(whole_stack.data / "ledger.jsonl", ()).texts
        if parse_canonical(text)[0] == "away.done"
    )

    def in_table() -> list[int]:
        return [n for sample, n in raw_samples(whole_stack.hdfs, [print_]).items() if sample.value == "132"]

    eventually(lambda: in_table() == [1], pause=2)


def _has_lines(file: Path, wanted: int) -> bool:
    return len(file.read_text().split()) >= wanted


def matchers(name: str) -> tuple[Matcher, ...]:
    return (Matcher("__name__", "=", name),)


def test_after_the_faults_every_part_is_healthy_and_acks_flow(whole_stack: Stack) -> None:
    whole_stack.wait_healthy(60)
    eventually(lambda: acks_flow(whole_stack))
