"""Command that runs an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from artimon.cli.common import Panel
from artimon.cli.settings_command import OptionValues, settings_command

if TYPE_CHECKING:
    from sources.delivery.source_config import SourceConfig

PANEL = Panel.PROCESS
app = typer.Typer()


def _check_files(settings: SourceConfig) -> None:
    """Report invalid files as a usage error, with line and column. The file of sources may be created later."""
    from sources.scrape.jmx.mapping_file import read_rules
    from sources.scrape.sources_file import read_sources

    try:
        for path in settings.jmx_rules:
            read_rules(path)
        if settings.sources is not None and settings.sources.exists():
            read_sources(settings.sources)
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None


@settings_command(
    app, "pipeline.flows.runtime.agent_transport:AgentConfig", "sources.delivery.source_config:SourceConfig"
)
def agent(given: OptionValues) -> None:
    """Run an agent."""
    from artimon.cli.agent_process import run_agent_process
    from pipeline.flows.runtime.agent_transport import AgentConfig
    from sources.delivery.source_config import SourceConfig

    settings = given.make(AgentConfig)
    if settings.sites and settings.delivery != "end-to-end":
        raise typer.BadParameter("several sites need --delivery end-to-end: only it tracks which site has a batch")
    source = given.make(SourceConfig, agent=settings.name, zookeeper=settings.zookeeper, data=settings.data)
    _check_files(source)
    run_agent_process(settings, source)
