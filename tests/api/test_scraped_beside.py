"""Expressions of public dashboards and rules, asked of Prometheus and of our API by HTTP, over what Prometheus scraped:
a node_exporter, a page of the bookkeeper, Prometheus itself and a synthetic fleet."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
import xxhash

from artimon.model.batch import BatchId, PollResult
from artimon.model.clock import SYSTEM_CLOCK, ManualClock
from artimon.model.feed_codec import FeedEntry, FeedRange, concat_samples
from benchmarks.peers.process import ask
from benchmarks.peers.series import PeerFailed
from tests.api.scraped_targets import MINUTE_MS, Replay, Shop, fleet_pages, record, replaying
from tests.api.serving import served
from tests.query_dsl.promql.test_prometheus import EXPRESSIONS, Series, difference, theirs
from tests.query_dsl.pushing import Together
from tests.seeds import drawn
from tests.sources.helpers import HOST
from tests.sources.prometheus.exporters import node_exporter, prometheus
from tests.sources.receive.bodies import request_1, series_1
from tests.sources.receive.test_receiver import receiving
from tests.waiting import eventually
from varstore.shard.shard import Shard

pytestmark = [pytest.mark.slow, pytest.mark.programs, pytest.mark.timeout(900)]
COUNT = 74
"""Pages of each target, one a minute: what the finest level of memory holds."""
RANGE_MS = 10 * MINUTE_MS
"""Range of the range queries: windows of an hour lie in the scraped time."""
SAMPLES_OF_A_BODY = 2_000
OPTIONS = ["--storage.tsdb.min-block-duration=1d"]
"""With blocks of two hours Prometheus refuses samples that are more than an hour older than its newest one."""
OWN = (Path(__file__).parent / "scraped_expressions.txt").read_text(encoding="utf-8").splitlines()
TEXTS = sorted(
    {line for line in OWN if line and not line.startswith("#")} | {one.replace("$i", "5m") for one in EXPRESSIONS}
)
DIFFERENCES = {
    "holt_winters(node_memory_MemFree_bytes[30m], 0.5, 0.1)": "in version 3 double_exponential_smoothing, an experiment"
}
"""Differences of the versions 2.42 and 3: expression -> reason."""


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, int]]:
    """Addresses of Prometheus and of our API over the same samples, and the end of their time in ms."""
    folder = tmp_path_factory.mktemp("scraped")
    end_ms = SYSTEM_CLOCK.now_ms() // MINUTE_MS * MINUTE_MS - 2 * MINUTE_MS  # what is scraped now is later
    with replaying(end_ms) as replay, scraping(folder, replay) as address:
        samples = scraped(address, end_ms)
        jobs = Counter(dict(one)["job"] for one in samples)
        assert min(jobs["prometheus"], jobs["node"]) > 300
        assert {"shop", "kubelet", "api"} < jobs.keys()
        assert sum(len(points) >= COUNT for points in samples.values()) > 0.7 * len(samples)  # the fleet has gaps
        taken = asyncio.run(received(folder / "agent", samples))
        assert sum(len(one.samples) for one in taken) == sum(map(len, samples.values()))
        with served(Together([shard_of(taken, len(samples))]), clock=ManualClock(end_ms + 20_000)) as client:
            yield address, f"http://127.0.0.1:{client.port}", end_ms


@contextmanager
def scraping(folder: Path, replay: Replay) -> Iterator[str]:
    """Run a Prometheus until it has scraped all pages; yield its address."""
    names = ("node", "shop", "prometheus", "fleet")
    jobs = [
        {"job_name": name, "metrics_path": f"/{name}", "honor_labels": name == "fleet", **_target(replay)}
        for name in names
    ]
    config = {"global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"}, "scrape_configs": jobs}
    shop = Shop(drawn("scraped shop"))
    try:
        with node_exporter(folder) as node, prometheus(folder, config, options=OPTIONS) as peer:
            found = record({"node": node, "shop": shop.address, "prometheus": peer.address}, shop, COUNT, 0.1)
            replay.show({**found, "fleet": fleet_pages(drawn("scraped fleet"), COUNT)})
            eventually(lambda: not any(replay.left.values()), "all pages are scraped")
            yield f"http://{peer.address}"
    finally:
        shop.stop()


def _target(replay: Replay) -> dict[str, object]:
    return {"static_configs": [{"targets": [f"127.0.0.1:{replay.port}"]}]}


def scraped(address: str, end_ms: int) -> Series:
    """Return all samples of Prometheus until the end."""
    question = f'{{__name__=~".+"}}[{COUNT}m]'
    told = json.loads(ask(f"{address}/api/v1/query?query={quote(question)}&time={end_ms / 1000}"))["data"]["result"]
    return {tuple(sorted(one["metric"].items())): {round(t * 1000): float(v) for t, v in one["values"]} for one in told}


async def received(folder: Path, samples: Series) -> list[PollResult]:
    """Send samples to a receiver by remote write, minute by minute; return what it took."""
    rows = sorted((time_ms, key, value) for key, points in samples.items() for time_ms, value in points.items())
    async with receiving(folder) as agent:
        for first in range(0, len(rows), SAMPLES_OF_A_BODY):
            part = rows[first : first + SAMPLES_OF_A_BODY]
            body = request_1(*(series_1(dict(key), [(time_ms, value)]) for time_ms, key, value in part))
            status, text, _ = await agent.send(body)
            assert status == 204, text
        return [one for one in agent.sink.accepted if one.source == f"received/{HOST}/default"]


def shard_of(taken: Sequence[PollResult], series: int) -> Shard:
    """Return a shard that was fed with these batches."""
    shard = Shard("0", capacity=series + 100)
    for offset, one in enumerate(taken):
        for block in one.blocks:
            shard.announce(block)
        append_ms = -(-int(one.samples.time_ms.max(initial=0)) // MINUTE_MS) * MINUTE_MS + 1_000
        digest = xxhash.xxh3_64_intdigest(one.samples.fingerprint.tobytes())
        batch = BatchId("a", 1, 0, offset)
        entry = FeedEntry(offset, append_ms, batch, one.source, append_ms, len(one.samples), True, digest)
        samples = concat_samples([one.samples])
        shard.feed(FeedRange("t", 0, offset, offset + 1, (entry,), samples, vshards=shard.vshards))
    return shard


def answers(address: str, text: str, end_ms: int) -> tuple[Series | str, Series | str]:
    """Return the answers for one time and for a range, or the errors."""
    start, end = (end_ms - RANGE_MS) / 1000, end_ms / 1000
    questions = (("query", {"time": end}), ("query_range", {"start": start, "end": end, "step": MINUTE_MS / 1000}))
    found: list[Series | str] = []
    for path, grid in questions:
        try:
            found.append(theirs(address, path, query=text, **grid))
        except PeerFailed as problem:
            found.append(str(problem))
    return found[0], found[1]


def outcome(mine: Series | str, expected: Series | str) -> tuple[str, object]:
    """Return the kind of an outcome, and what differs. Two errors are equal."""
    if isinstance(mine, str) or isinstance(expected, str):
        both = isinstance(mine, str) and isinstance(expected, str)
        return ("refused", None) if both else ("different", (str(mine)[:300], str(expected)[:300]))
    found = difference(mine, expected)
    return ("different", found) if found else ("equal" if expected else "empty", None)


def test_both_answer_the_same_over_what_was_scraped(addresses: tuple[str, str, int]) -> None:
    peer, own, end_ms = addresses
    counts: Counter[str] = Counter()
    wrong = {}
    for text in TEXTS:
        pairs = zip(answers(own, text, end_ms), answers(peer, text, end_ms), strict=True)
        (first, told), (second, told_range) = (outcome(*pair) for pair in pairs)
        kind = next((one for one in ("different", "refused") if one in (first, second)), second)
        counts[kind] += 1
        if kind == "different":
            wrong[text] = told or told_range
        elif kind != "equal":
            print(f"both {kind}: {text}")
    print(dict(counts))
    assert {text: found for text, found in wrong.items() if text not in DIFFERENCES} == {}
    assert wrong.keys() == DIFFERENCES.keys()
    assert counts["equal"] >= 400
