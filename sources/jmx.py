"""All bean servers of an agent: reads the rules once, starts a source for each, ends those no longer configured."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from artimon.model.protocols import SinkRefused
from sources.config import SourceConfig
from sources.follower import Shared
from sources.jmx_rule_file import read_rules, shipped_rules
from sources.jmx_rules import BeanRule
from sources.jmx_source import JmxShared, JmxSource, identity

log = logging.getLogger(__name__)


def load_rules(config: SourceConfig) -> tuple[BeanRule, ...]:
    """The rules of the configured files, then the shipped ones; none without bean servers. Raises JmxRulesError."""
    if not config.jmx:
        return ()
    return (*(rule for path in config.jmx_rules for rule in read_rules(path)), *shipped_rules())


def bean_sources(shared: Shared, rules: Sequence[BeanRule]) -> list[JmxSource]:
    """A source for each configured bean server; the state of the last run has been read."""
    jmx = JmxShared(shared, rules)
    return [JmxSource(target, jmx) for target in shared.config.jmx]


async def end_removed(shared: Shared) -> None:
    """End the series of bean servers that are no longer configured."""
    configured = [identity(target) for target in shared.config.jmx]
    for series in shared.delivery.store:
        known = series.meta.get("jmx")
        if known is not None and known not in configured and series.live:
            log.info("%s is no longer configured: its series end", series.name)
            try:
                await shared.delivery.end(series)
            except SinkRefused:
                pass  # tried again at the next start
