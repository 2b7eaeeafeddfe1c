"""The fleet of `artimon demo`: its samples are plausible, the same each time, and an agent takes all of them."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import cramjam
import numpy as np
import pytest

from artimon.model.clock import SYSTEM_CLOCK
from artimon.stack import demo_sender
from artimon.stack.demo_fleet import COARSE_MS, DAY_MS, HOUR_MS, METRICS, MINUTE_MS, DemoFleet
from artimon.stack.demo_sender import DemoError, DemoSender, RequestTemplate, metadata_request
from sources.receive.remote_write import RemoteWriteReader
from tests.sockets import free_port
from tests.sources.helpers import KeepingSink, running
from tests.waiting import until

END = 1_795_000_020_000 // MINUTE_MS * MINUTE_MS


def rows_of(fleet: DemoFleet, name: str, **labels: str) -> list[int]:
    return [row for row, (one, found) in enumerate(fleet.series) if one == name and labels.items() <= found.items()]


def test_the_same_seed_and_times_give_the_same_samples() -> None:
    first, second = (list(DemoFleet(10, 1, END).samples()) for _ in range(2))
    assert all(np.array_equal(a.values, b.values) for a, b in zip(first, second, strict=True))
    other = next(DemoFleet(10, 1, END, seed=2).samples())
    assert not np.array_equal(first[0].values, other.values)


def test_times_are_coarse_before_and_fine_at_last() -> None:
    times = np.concatenate([chunk.times_ms for chunk in DemoFleet(1, 5, END).samples()])
    steps = np.diff(times)
    assert set(steps.tolist()) == {COARSE_MS, MINUTE_MS}
    assert times[0] == END - 5 * DAY_MS
    assert times[-1] == END
    assert int((steps == MINUTE_MS).sum()) == 3 * 1_440


def test_counters_are_whole_and_never_fall() -> None:
    fleet = DemoFleet(20, 4, END)
    values = np.concatenate([chunk.values for chunk in fleet.samples()], axis=1)
    counters = [row for row, (name, _) in enumerate(fleet.series) if METRICS[name].kind == "counter"]
    assert (np.diff(values[counters], axis=1) >= 0).all()
    assert (values[counters] == np.floor(values[counters])).all()
    assert np.isfinite(values).all()
    assert (values >= 0).all()


def test_buckets_of_a_histogram_rise_with_their_bound() -> None:
    fleet = DemoFleet(5, 1, END)
    chunk = next(fleet.samples())
    host = fleet.fleet[0].labels
    buckets = rows_of(fleet, "http.request.seconds.bucket", host=host["host"])
    grown = chunk.values[buckets, -1] - chunk.values[buckets, 0]
    assert (np.diff(grown) >= -1).all()  # each is rounded down by itself
    assert fleet.series[buckets[-1]][1]["le"] == "+Inf"


def test_each_incident_shows_in_the_series() -> None:
    fleet = DemoFleet(40, 10, END)
    chunks = list(fleet.samples())
    times = np.concatenate([chunk.times_ms for chunk in chunks])
    values = np.concatenate([chunk.values for chunk in chunks], axis=1)
    present = np.concatenate([chunk.present for chunk in chunks], axis=1)
    used = rows_of(fleet, "host.volume.used.bytes", volume="/data", role="db")[0]
    size = rows_of(fleet, "host.volume.size.bytes", volume="/data", role="db")[0]
    assert values[used, -1] / values[size, -1] > 0.95
    assert values[used, 0] / values[size, 0] < 0.5
    rack = fleet.incidents["rack"]
    dark = present[rows_of(fleet, "host.load", rack="r03")][:, rack.share(times) > 0]
    assert dark.size
    assert not dark.any()
    silent = rows_of(fleet, "host.load", role="batch")[0]
    assert not present[silent, -1]
    assert present[silent, times < END - 27 * HOUR_MS].any()
    deploy = fleet.incidents["deploy"].share(times) > 0
    failed = rows_of(fleet, "http.requests", status="500", datacenter="dc1")
    grown = np.diff(values[failed], axis=1, prepend=values[failed, :1]).sum(axis=0)
    fine = times > END - 2 * DAY_MS - 6 * HOUR_MS
    assert grown[deploy & fine].mean() > 20 * grown[~deploy & fine].mean()


def test_a_request_holds_the_samples_that_it_was_filled_with() -> None:
    fleet = DemoFleet(3, 1, END)
    template = RequestTemplate(fleet.series, END)
    values = np.arange(len(fleet.series), dtype=np.float64) * 1.5
    times = END + fleet.phases_ms
    here = [row for row in range(len(fleet.series)) if row % 3]
    for chosen in (None, here):
        reader = RemoteWriteReader(None)
        packed = bytes(cramjam.snappy.compress_raw(template.fill(values, times, chosen)))
        found = reader.read(packed, "1").columns
        rows = list(range(len(fleet.series))) if chosen is None else chosen
        assert sorted(zip(found.cell.view(np.float64).tolist(), found.time_ms.tolist(), strict=True)) == sorted(
            zip(values[rows].tolist(), times[rows].tolist(), strict=True)
        )


def test_metadata_name_every_variable() -> None:
    reader = RemoteWriteReader(None)
    reader.read(bytes(cramjam.snappy.compress_raw(metadata_request())), "1")
    assert {name for name, _ in DemoFleet(5, 1, END).series} <= METRICS.keys()


async def sent_twice(place: Path, fleet: DemoFleet) -> tuple[KeepingSink, DemoSender, int]:
    """Send two minutes of the fleet twice to an agent."""
    sink, address = KeepingSink(), f"127.0.0.1:{free_port()}"
    chunk = fleet.at(np.array([fleet.end_ms - MINUTE_MS, fleet.end_ms]), MINUTE_MS)
    sender = DemoSender(f"http://{address}", fleet)
    async with running("127.0.0.1:1", place, sink, receive=(address,)):
        await until(lambda: is_answering(address), "the receiver listens")
        await asyncio.to_thread(sender.send, chunk)
        await asyncio.to_thread(sender.send, chunk)
        sender.close()
    return sink, sender, int(chunk.present.sum())


def is_answering(address: str) -> bool:
    host, port = address.split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_an_agent_takes_every_sample_once(tmp_path: Path) -> None:
    fleet = DemoFleet(6, 1, SYSTEM_CLOCK.now_ms() // MINUTE_MS * MINUTE_MS)
    sink, sender, samples = asyncio.run(sent_twice(tmp_path, fleet))
    stored = [one for one in sink.accepted if one.source.startswith("received/")]
    assert sum(len(one.samples) for one in stored) == samples
    assert len({one.source for one in stored}) == demo_sender.SENDERS
    assert sender.samples == 2 * samples


def test_an_address_without_an_agent_is_an_error() -> None:
    fleet = DemoFleet(1, 1, END)
    sender = DemoSender(f"http://127.0.0.1:{free_port()}", fleet)
    with pytest.raises(DemoError, match="no agent receives at"):
        sender.load(lambda _share, _samples: None)
