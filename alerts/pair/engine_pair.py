"""Pair as seen by one of its engines: lease, journal, role and shares of rules, put together for the process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from alerts.api.handlers import ApiRequest
from alerts.pair.engine_lease import EngineLease
from alerts.pair.pair_member import PairMember
from alerts.pair.rule_shares import RuleShares
from alerts.state.operations import OperationError
from artimon.runtime.http.engine_client import EngineClient, EngineError

FORWARD_S = 25.0
"""Timeout in seconds of an answer of the leader: a transaction of the journal may take 10 s."""


@dataclass(slots=True)
class EnginePair:
    """`token`: that of the API, the same at all engines."""

    lease: EngineLease
    member: PairMember
    shares: RuleShares
    token: str = ""

    def start(self) -> None:
        """Take part in the election."""
        self.lease.start()

    def stop(self) -> None:
        """Give up the lease, so that another engine leads at once."""
        self.shares.close()
        self.member.close()
        self.lease.stop()

    # ---- alerts.api.handlers.Pair

    def is_elsewhere(self) -> bool:
        """Return True if another engine takes the changes."""
        return not self.member.leads

    def forward(self, request: ApiRequest) -> Any:
        """Return the answer of the engine that leads. Raises OperationError."""
        leader = self.lease.leader
        if leader is None or self.lease.ours or request.forwarded:
            raise OperationError("no engine of the pair leads at the moment: try again", 503)
        client = EngineClient(leader.api, request.author, self.token, FORWARD_S, forwards=True)
        try:
            return client.ask(request.method, request.path, request.json() if request.body else None, **request.query)
        except EngineError as problem:
            raise OperationError(str(problem), problem.status or 503) from None

    def answer_share(self, asked: Mapping[str, Any]) -> Any:
        """Evaluate rules for the engine that leads. Raises OperationError."""
        return self.shares.answer(asked)

    def peers(self) -> list[dict[str, Any]]:
        """Return the engines in the form of the peers of an Alertmanager."""
        return [{"name": one.id, "address": one.api} for one in self.lease.engines]

    # ---- display

    def problems(self) -> list[str]:
        """Return the problems to show."""
        return [*self.member.problems(), *self.shares.problems.values()]
