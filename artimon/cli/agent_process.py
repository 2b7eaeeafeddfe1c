"""Process of an agent: its source, its transport and its flows. Imports nothing that only other processes need."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from artimon.cli.common import exits_logged
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.protocols import Sink
from artimon.runtime.config_file import ConfigFileError
from artimon.runtime.health import HealthFile
from artimon.runtime.process_setup import install_signal_handlers
from artimon.runtime.self_metrics_endpoint import EXIT_TIMEOUT_S, SelfMetricsEndpoint, instance_of
from artimon.runtime.settings import secure_polls, security
from pipeline.control.signatures import KeyFileError
from pipeline.flows.context import GROUPS, INSECURE
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from pipeline.flows.runtime.flows import Flows, open_flows
from pipeline.flows.spi import FlowError
from pipeline.wal.file_system import LogError
from sources.artimon_source import ArtimonSource
from sources.delivery.source_config import SourceConfig
from sources.poll.zookeeper_session import ZooKeeperSession

log = logging.getLogger("artimon")
HEALTH_S = 1.0


def run_agent_process(
    settings: AgentConfig, polls: SourceConfig, wrap_sink: Callable[[Sink], Sink] | None = None
) -> None:
    """Run an agent with the artimon source until SIGTERM. `wrap_sink` lets tests observe the batches."""
    stop = install_signal_handlers()
    home = settings.sites[0].zookeeper if settings.sites else settings.zookeeper
    polls = replace(polls, security=security() if secure_polls() else None)
    with exits_logged(ConfigFileError, FlowError):
        ours = open_flows(settings.flows, settings.name, settings.data, settings.zookeeper, allow=settings.allow)
    session = ZooKeeperSession(home, polls.session_s)
    with exits_logged(LogError, KeyFileError):
        running = Agent(replace(settings, zookeeper=home, return_s=settings.patience_s), SYSTEM_CLOCK, session.client)
    running.controls.flows = ours
    ours.share_object(GROUPS, running.plane.directory)
    ours.share_object(INSECURE, settings.insecure)
    instance, shared = instance_of("agent", settings.name), session if polls.zookeeper == home else None
    own = SelfMetricsEndpoint("agent", instance, home, stop, session=session.client)
    try:
        sink = wrap_sink(running.sink) if wrap_sink else running.sink
        source = ArtimonSource(polls, sink, SYSTEM_CLOCK, session=shared)
        own.poll_last = source.poll_last
        period_ms = polls.period_ms
        running.controls.on_setting("poll", lambda other_ms: source.set_period(other_ms or period_ms))
        session.start()
        ours.start()
        running.start()
        health = HealthFile(settings.health, "agent", publish=own)
        asyncio.run(_run_source(running, source, own, stop, health, ours))
    finally:
        for problem in ours.stop():
            log.error("%s", problem)
        running.stop()
        own.close()
        session.stop()


async def _run_source(
    running: Agent,
    source: ArtimonSource,
    own: SelfMetricsEndpoint,
    stop: threading.Event,
    health: HealthFile,
    flows: Flows,
) -> None:
    """Run the source until `stop` and write the agent's health. Then wait up to LEAVE_S until it has
    polled the agent itself, so that the last figures are in the log."""
    ended = asyncio.Event()
    polling = asyncio.create_task(source.run(ended))
    while not stop.is_set() and not polling.done():
        problem = running.failing
        state = "failing" if problem else "ok"
        if health.is_due(state, problem):
            health.write(state, problem, **_merge_figures(running.figures(), source.figures(), flows.figures()))
        await asyncio.wait([polling], timeout=HEALTH_S)
    if not polling.done():
        await asyncio.to_thread(own.unregistered.wait, EXIT_TIMEOUT_S)
    ended.set()
    await polling


def _merge_figures(
    log_figures: dict[str, Any], source_figures: dict[str, Any], flow_figures: dict[str, Any]
) -> dict[str, Any]:
    """Merge the figures of the log, the source and the flows; common tables and lists are concatenated."""
    return {
        **flow_figures,
        **log_figures,
        **source_figures,
        "refused": {**log_figures["refused"], **source_figures["refused"]},
        "log_refused": log_figures["refused"],
        "source_refused": source_figures["refused"],
        "problems": [*log_figures["problems"], *source_figures["problems"], *flow_figures["problems"]],
        "warnings": [text for one in (log_figures, source_figures, flow_figures) for text in one.get("warnings", ())],
    }
