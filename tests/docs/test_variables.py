"""docs/variables.md says of every own variable what the tables say, and of no other."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from artimon.runtime import lag_limits as lag
from artimon.runtime.self_metrics import PROCESS, metrics_tables
from sources.delivery.endpoint_status import POLL_MS, POLL_SAMPLES, UP
from sources.receive.receiver import Receiver
from sources.scrape.scrape_manager import RULE_SERIES
from tests.sources.dropin.world import LABELS, T, World

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "variables.md"
ROW = re.compile(r"^\| `([\w.]+)` \| (.*?) \| (.*?) \| (\w+) \| (.*?) \|$", re.MULTILINE)


def of_a_dropin_file(place: Path) -> dict[str, tuple[str, str, str, str]]:
    """Return the agent's variables about a file, without the labels of its host."""
    world = World(place)
    world.put("a.artimon", f"{T} n 1")
    asyncio.run(world.poll())
    return {
        said.name: (", ".join(said.labels.keys() - LABELS.keys()), said.unit, said.kind.name.lower(), said.help)
        for said in world.dropin.variables(world.now)
    }


def of_a_receiver() -> dict[str, tuple[str, str, str, str]]:
    """Return the agent's variables about a sender."""
    addresses = ("127.0.0.1:9201", "statsd+udp://127.0.0.1:9202")
    receiver = Receiver(addresses, None, None, SimpleNamespace(clock=None), lambda: (0, 60_000))  # type: ignore[arg-type]
    sender: Any = SimpleNamespace(accepted=1, refused={"too old": 1})
    receiver._senders._by_name["west"] = sender
    receiver._listeners[0].answers["204"] += 1
    receiver._listeners[1].dropped["datagrams"] += 1
    return {
        said.name: (", ".join(said.labels), said.unit, said.kind.name.lower(), said.help)
        for said in receiver.variables()
    }


def test_every_variable_is_listed_as_it_is_and_no_other(tmp_path: Path) -> None:
    found = ROW.findall(DOCUMENT.read_text())
    listed = {name: (labels, unit, kind, what) for name, labels, unit, kind, what in found}
    assert len(listed) == len(found), "a name stands there twice"
    polled = {UP, POLL_MS, POLL_SAMPLES, RULE_SERIES}
    assert polled <= listed.keys()
    owned = {
        own.name: (", ".join(own.labels), own.unit, own.kind, own.help)
        for table in (PROCESS, *metrics_tables().values())
        for own in table
    }
    owned.update(of_a_dropin_file(tmp_path))
    owned.update(of_a_receiver())
    assert {name: row for name, row in listed.items() if name not in polled} == owned


def test_the_limits_of_status_are_those_of_the_code() -> None:
    rows = dict(re.findall(r"^\| ([\w ]+) \| (.* (?:for|refilling).*) \|$", DOCUMENT.read_text(), re.MULTILINE))
    shipped_ms = lag.INTERVALS * lag.RAW_INTERVAL_MS + lag.ACK_AGE_MS
    assert f"for {lag.UNSENT_AGE_MS // 1000} s; or" in rows["agent"]
    assert f"{lag.INTERVALS} appends of the raw table and {lag.ACK_AGE_MS // 1000} s" in rows["agent"]
    assert f"({shipped_ms // 1000} s as shipped), at level `kafka` for {lag.ACK_AGE_MS // 1000} s" in rows["agent"]
    assert f"waits for {lag.UNSENT_AGE_MS // 1000} s" in rows["collector"]
    assert f"for {lag.RAW_LAG_MS // 1000} s, or for {lag.INTERVALS} appends and" in rows["raw table"]
    assert f"for {lag.SHARD_LAG_MS // 1000} s, or one" in rows["shards"]
    assert f"not judged in its first {lag.GRACE_S:.0f} s" in DOCUMENT.read_text().replace("\n", " ")
