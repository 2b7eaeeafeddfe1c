"""The agent's own way: batches to a collector and polls of endpoints, over certificates and tokens."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime import settings
from bookkeeper.rpc import poll_service as service
from bookkeeper.rpc.framed_server import FramedServer
from bookkeeper.rpc.security import Security
from bookkeeper.variables.variable_registry import VariableRegistry
from sources.base.endpoint_address import EndpointAddress
from sources.base.source_errors import PollError
from sources.delivery.poll_context import PollLimits
from sources.delivery.source_config import SourceConfig
from sources.poll.poll_client import PollClient
from tests.pipeline.helpers import polled
from tests.pipeline.plane.world import Operator, new_name, running, serving
from tests.security.certificates import Authority, Pair
from tests.security.serving import certificates, tokens
from tests.waiting import eventually

Environment = Callable[[dict[str, str]], None]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Environment]:
    """Sets what this process shows to others."""

    def set_all(values: dict[str, str]) -> None:
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        settings.security.cache_clear()

    yield set_all
    monkeypatch.undo()
    settings.security.cache_clear()


@pytest.mark.stack
def test_batches_go_only_where_the_agent_is_known(
    tmp_path: Path, zookeeper: str, authority: Authority, server_pair: Pair, agent_pair: Pair, environment: Environment
) -> None:
    """Without a certificate nothing is lost and nothing goes; with one it does."""
    name, group, operator = new_name(), new_name(), Operator(zookeeper)
    operator.push(f"agent/{name}", collectors=[group])
    collector = certificates(authority, server_pair, peers=("agent-1.*",))
    with serving(operator.client, new_name(), group, security=collector) as store:
        with running(name, tmp_path, zookeeper) as agent:
            agent.wal_sink.accept_now([polled("source-1")])
            eventually(lambda: agent.figures()["collectors"] > agent.figures()["collectors_up"], "it is refused")
            assert store.messages == 0
            assert agent.figures()["pending_batches"] == 1
        environment(
            {
                "ARTIMON_TLS_CERT": agent_pair.certificate,
                "ARTIMON_TLS_KEY": agent_pair.key,
                "ARTIMON_TLS_CA": authority.certificate,
            }
        )
        with running(name, tmp_path, zookeeper) as agent:
            eventually(lambda: agent.figures()["pending_batches"] == 0, "it is let in")
            assert store.messages == 1
    operator.close()


@pytest.mark.parametrize("way", ["certificates", "token", "both"])
def test_endpoints_are_polled_by_who_may(
    way: str, tmp_path: Path, authority: Authority, server_pair: Pair, agent_pair: Pair
) -> None:
    def side(pair: Pair, token: str = "a token of the pollers") -> Security:
        shown = tokens(tmp_path / uuid.uuid4().hex, token)
        if way == "token":
            return shown
        made = certificates(authority, pair)
        return Security(made.tls, shown.tokens) if way == "both" else made

    stranger = Authority(tmp_path / "other")
    wrong = (
        side(agent_pair, "some other token of others")
        if way != "certificates"
        else certificates(authority, stranger.sign("agent-1", "DNS:agent-1.artimon"))
    )
    process, variables = uuid.uuid4().bytes, VariableRegistry()
    variables.integer("requests", None).add(3)
    handler = service.PollHandler(variables, service.ProcessIdentity(process, 1, "shop", "0"))
    server = FramedServer(service.idl().Bookkeeper, handler, security=side(server_pair))
    port = server.start()
    try:
        assert asyncio.run(poll(port, process, side(agent_pair))) == 1
        for other in (None, wrong):
            with pytest.raises(PollError):
                asyncio.run(poll(port, process, other))
        assert server.unauthorized >= 1
    finally:
        server.stop()


async def poll(port: int, process: bytes, security: Security | None) -> int:
    """Variables that the endpoint answers with, by two polls of one connection."""
    config = SourceConfig("agent", "127.0.0.1:1", Path("unused"), deadline_s=5.0, security=security)
    poller = PollClient(EndpointAddress("shop", "127.0.0.1", port, process), config, PollLimits(4), SYSTEM_CLOCK)
    try:
        await poller.poll()
        reading = await poller.poll()
        return len(reading.cells)
    finally:
        poller.close()
