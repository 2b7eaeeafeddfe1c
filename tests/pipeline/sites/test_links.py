"""Agent of two data centres with real servers: two ensembles (chroots), two sets of topics, two stores."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from artimon.model.ack_state import AckState, PartitionState
from artimon.model.batch import BatchId
from artimon.stack.topics import TopicSpec, make_topics
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from pipeline.sites.multi_site_sender import MultiSiteSender, Site, merge_figures, parse_sites
from tests.pipeline.helpers import figure, polled, started
from tests.pipeline.kafka_helpers import APPEND_TIME, collector, deduplicated, read_topic
from tests.waiting import eventually
from tests.zookeepers import connected

PATIENCE, RETURN = 1.0, 1.0


class Centre:
    """Site with a ZooKeeper tree and topics of its own (under a prefix that its collector knows)."""

    def __init__(self, name: str, zookeeper: str, kafka: str, client: KazooClient) -> None:
        self.name, self.kafka, self._client = name, kafka, client
        self.prefix = f"t{uuid.uuid4().hex[:12]}"
        self._root = f"/{self.prefix}"
        client.ensure_path(self._root)
        self.site = Site(name, zookeeper + self._root)
        names = (f"{self.prefix}.samples", f"{self.prefix}.series")
        make_topics(kafka, tuple(TopicSpec(one, 2, APPEND_TIME) for one in names))

    @contextmanager
    def collector(self) -> Iterator[None]:
        with collector(self.site.zookeeper, self.kafka, self.prefix):
            yield

    def stored(self) -> set[BatchId]:
        return set(deduplicated(self.kafka, f"{self.prefix}.samples"))

    def named(self) -> int:
        """Announcements in its topic."""
        return len(read_topic(self.kafka, f"{self.prefix}.series"))

    def ack(self, agent: Agent) -> None:
        """Publish, as its raw query, that everything this agent sent here is in the table."""
        for sent in agent._sender.unacked():
            position = sent.position
            parts = {n: PartitionState(1000, 0, 1000) for n in range(2)}
            state = AckState(position.cluster, "artimon.samples", position.topic_id, 0, parts)
            path = f"{self._root}/artimon/acks/{position.topic_id}"
            self._client.ensure_path(path)
            self._client.set(path, state.to_json())


def _release(sites: MultiSiteSender, lane: int) -> bool:
    """Give up the lane's hold; True if nothing was left to release."""
    told = sites.release(lane)
    return told != "" and "released" not in told


@pytest.fixture
def centres(zookeeper: str, kafka: str) -> Iterator[tuple[Centre, Centre]]:
    with connected(zookeeper) as client:
        yield Centre("near", zookeeper, kafka, client), Centre("far", zookeeper, kafka, client)


@contextmanager
def agent(data: Path, *centres: Centre) -> Iterator[Agent]:
    sites = tuple(centre.site for centre in centres)
    config = AgentConfig("a", data, sites[0].zookeeper, sites=sites, patience_s=PATIENCE, return_s=RETURN)
    with started(Agent(config)) as running:
        yield running


def accept(one: Agent, count: int, announce: bool = False) -> None:
    for n in range(count):
        one.wal_sink.accept_now([polled(f"source-{n}", 5, announce=announce)])


@pytest.mark.stack
def test_after_the_outage_of_a_site_each_batch_is_at_one_site(tmp_path: Path, centres: tuple[Centre, Centre]) -> None:
    """Batches sent and not acked stay bound to the lost near site, also through a restart of the agent. Unsent ones go
    to the far site with their announcements, and new data returns once the near site is back."""
    near, far = centres
    with agent(tmp_path, near, far) as one:
        with near.collector():
            accept(one, 8, announce=True)
            eventually(lambda: len(one._sender.unacked()) == 8, "sent to the near site")
        accept(one, 6)
        with far.collector():
            eventually(lambda: len(one._sender.unacked()) == 14, "the others go to the far one")
            eventually(lambda: far.named() == 8, "and what their series are called")
    assert near.stored().isdisjoint(far.stored())
    assert len(far.stored()) == 6
    with agent(tmp_path, near, far) as one:
        assert figure(one, "pending_batches") >= 14
        with far.collector():
            accept(one, 4)
            eventually(lambda: len(far.stored()) == 10, "a restart remembers where its lanes are")
            with near.collector():
                eventually(lambda: set(figure(one, "site_lanes").values()) == {"near"}, "they come back")
                accept(one, 5)
                eventually(lambda: len(near.stored()) == 13, "to the near site again")
                near.ack(one)
                far.ack(one)
                eventually(lambda: figure(one, "pending_batches") == 0, "all are acked, each by its own site")
    assert len(near.stored() | far.stored()) == len(near.stored()) + len(far.stored()) == 23


@pytest.mark.stack
def test_an_operator_releases_a_lane(tmp_path: Path, centres: tuple[Centre, Centre]) -> None:
    near, far = centres
    with agent(tmp_path, near, far) as one:
        with near.collector():
            accept(one, 8)
            eventually(lambda: len(one._sender.unacked()) == 8, "sent")
        with far.collector():
            accept(one, 8)
            eventually(lambda: len(far.stored()) == 8, "the far one is in use")
            lanes = sorted({id.lane for id in near.stored()})
            assert figure(one, "sites")["near"]["bound"]
            for lane in lanes:
                assert one._multi_site is not None
                eventually(partial(_release, one._multi_site, lane))
            eventually(lambda: near.stored() <= far.stored(), "what the near one may still have goes too")
            assert figure(one, "released_batches") == 8
            assert not figure(one, "sites")["near"]["bound"]
    assert not (near.stored() - far.stored())


def test_figures_of_sites_are_summed_and_ages_are_the_maximum() -> None:
    first = {"pending": 1, "oldest_unacked_ms": 5, "buffer_full": "", "nacks": {"full": 1}}
    second = {"pending": 2, "oldest_unacked_ms": 9, "buffer_full": "yes", "nacks": {"full": 2, "kafka": 1}}
    lags = [{"source_lag_ms": {"a": 5}}, {"source_lag_ms": {"a": 3}}]
    assert merge_figures([{**first, **lags[0]}, {**second, **lags[1]}]) == {
        "pending": 3,
        "oldest_unacked_ms": 9,
        "buffer_full": "yes",
        "nacks": {"full": 3, "kafka": 1},
        "source_lag_ms": {"a": 5},
    }


@pytest.mark.parametrize("texts", [["paris"], ["=h:1"], ["a=h:1", "a=h:2"], ["a b=h:1"]])
def test_invalid_sites_are_refused(texts: list[str]) -> None:
    with pytest.raises(ValueError, match="site"):
        parse_sites(texts)
    assert parse_sites(["a-1=h:1,g:2/root"]) == (Site("a-1", "h:1,g:2/root"),)
