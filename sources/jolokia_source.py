"""A bean server with a Jolokia agent, as a source."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from sources.follower import Shared
from sources.http_client import Question, ask
from sources.jmx_answer import Answer
from sources.jmx_rules import BeanRule
from sources.jmx_source import BeanSource
from sources.jolokia import parse_bulk, parse_singles, reads
from sources.jolokia_target import JolokiaTarget
from sources.target_source import Pool

_JSON = "application/json"


class JolokiaSource(BeanSource):
    """Asks for what the rules name, and for nothing else."""

    def __init__(self, target: JolokiaTarget, shared: Shared, pool: Pool, rules: Sequence[BeanRule]) -> None:
        super().__init__(target, shared, pool, rules)
        self._jolokia, self._reads = target, reads(rules)
        self._body = json.dumps([one.body() for one in self._reads]).encode()

    async def fetch(self, ip: str) -> list[bytes]:
        target = self._jolokia
        shown = await asyncio.to_thread(target.access.shown, target.scheme)
        if target.bulk:
            questions = [Question(target.address, f"{target.path}/", _JSON, self._body, shown.headers)]
        else:
            paths = (one.path(target.path) for one in self._reads)
            questions = [Question(target.address, path, _JSON, headers=shown.headers) for path in paths]
        name, limit = target.access.server_name or target.host, self.shared.config.max_frame
        return [(await ask(one, ip, target.port, limit, shown.tls, name)).body for one in questions]

    def parse(self, raw: list[bytes]) -> Answer:
        return parse_bulk(raw[0], self._reads) if self._jolokia.bulk else parse_singles(raw, self._reads)
