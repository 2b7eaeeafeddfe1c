"""One request to many shards: each virtual shard is answered once, by the first shard that answers."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, wait
from select import POLLIN, poll
from typing import Any

from thriftpy2.thrift import TException

from artimon.model.select import NOT_OWNED, select_error
from artimon.model.vshards import union
from bookkeeper.rpc.framed_client import ConnectionLostError
from bookkeeper.rpc.framed_server import FramedError
from varstore.cluster.cluster_directory import ClusterState, ShardAddress
from varstore.cluster.holder_choice import REFILLING, WHOLE, HolderChoice, choose_holders, missing_notes
from varstore.cluster.shard_connections import Check, RequestFor, ShardAnswer, ShardConnections, SubRequest
from varstore.shard.shard_service import idl

VERY_LATE_S = 1.0
ACCEPT_PARTIAL_S = 3.0
"""Seconds after which a partial answer is accepted although a whole one may still come."""
CHECK_S = 0.05
"""Seconds between two calls of the check."""
MAX_REDIRECTS = 3


class ScatterGather:
    """One request from start to end, in the calling thread."""

    def __init__(
        self,
        connections: ShardConnections,
        shards: ClusterState,
        question: RequestFor,
        deadline: float,
        check: Check | None = None,
    ) -> None:
        """`check` is called every LOOK_S and may raise to end the round."""
        self._connections, self._shards, self._question, self._deadline = connections, shards, question, deadline
        self._check = check
        self._clock = connections.clock
        self._hedge_s = connections.hedge_s()
        self._parts: list[SubRequest] = []

    def ask(self, wanted: int) -> tuple[list[ShardAnswer], list[str]]:
        """Return the answers, each virtual shard in at most one of them, and a note for each reason why some are
        missing. Raises SelectError if any shard refuses."""
        try:
            self._parts, nobody = self._begin(wanted, frozenset(), 0)
            self._poll_inline()
            while not all(part.is_final() for part in self._parts) and self._step():
                pass
            outcomes = [outcome for part in self._parts for outcome in part.answers()]
        finally:
            self._end()
        answered = union(outcome.vshards for outcome in outcomes)
        return outcomes, self._notes((wanted & ~answered) | nobody)

    def _poll_inline(self) -> None:
        """Receive replies in this thread until one is late: waking a thread of the pool, and being woken by it, takes
        longer than most answers."""
        until = min(self._deadline, self._clock.monotonic() + self._hedge_s)
        while running := {
            part.in_flight.sent.fileno(): part for part in self._all_parts() if part.in_flight is not None
        }:
            polled = poll()
            for fileno in running:
                polled.register(fileno, POLLIN)
            left = until - self._clock.monotonic()
            if left <= 0:
                break
            for fileno, _ in polled.poll(1000 * min(left, CHECK_S)) or self._run_check():
                part = running[fileno]
                if part.in_flight is not None and part.in_flight.sent.receive_available():
                    self._handle_reply(part, self._connections.finish(part))

    def _run_check(self) -> tuple[()]:
        if self._check is not None:
            self._check()
        return ()

    def _begin(
        self, wanted: int, tried: frozenset[ShardAddress], depth: int, worst: int = REFILLING
    ) -> tuple[list[SubRequest], int]:
        """Ask the best untried holders of these virtual shards; also return the mask of those without a holder."""
        live = [place for place in self._shards.live if place not in tried]
        choices, nobody = choose_holders(live, wanted, self._connections.addresses_to_avoid(), worst)
        now = self._clock.monotonic()
        parts = [SubRequest(choice, now, depth) for choice in choices]
        for part in parts:
            self._connections.start(part, self._question, self._deadline)
        return parts, nobody

    def _all_parts(self) -> list[SubRequest]:
        return [below for part in self._parts for below in part.walk()]

    def _step(self) -> bool:
        """Wait for an answer or for the time to ask another shard; return False once there is nothing to wait for."""
        now = self._clock.monotonic()
        if now >= self._deadline or self._accepts_partial(now):
            return False
        self._run_check()
        for part in self._all_parts():
            self._connections.hand_over(part)
        running = {part.future: part for part in self._all_parts() if part.future is not None}
        patience = self._wait_s(now) if self._check is None else min(self._wait_s(now), CHECK_S)
        done, _ = wait(running, timeout=patience, return_when=FIRST_COMPLETED)
        for future in done:
            self._handle_reply(running[future], future)
        self._hedge(self._clock.monotonic())
        return True

    def _accepts_partial(self, now: float) -> bool:
        """Return True if partial answers must do, because no whole ones came for SOFT_S."""
        return all(
            part.is_final() or (part.answers() and now - part.since > ACCEPT_PARTIAL_S and self._covers(part))
            for part in self._parts
        )

    @staticmethod
    def _covers(part: SubRequest) -> bool:
        return union(outcome.vshards for outcome in part.answers()) == part.choice.vshards

    def _wait_s(self, now: float) -> float:
        """Return the seconds until the next part is late, a partial answer must do, or the deadline."""
        times = [self._deadline, *(part.since + ACCEPT_PARTIAL_S + 0.001 for part in self._parts)]
        for part in self._all_parts():
            if part.future is not None:
                late = (self._hedge_s, 2 * self._hedge_s, max(VERY_LATE_S, 3 * self._hedge_s))
                times += [part.since + s for s in late if part.since + s > now]
        return max(0.0, min(at for at in times if at > now or at == self._deadline) - now)

    def _handle_reply(self, part: SubRequest, future: Future[Any]) -> None:
        part.future = part.client = None
        place = part.choice.address
        try:
            part.answer = future.result()
            part.is_partial = bool(getattr(part.answer, "partial", False))
            if part.is_partial and part.fallbacks is None:  # another shard may have a whole answer
                self._ask_others(part, WHOLE)
        except idl().ShardError as refusal:
            if not str(refusal.message).startswith(NOT_OWNED):
                raise select_error(str(refusal.message)) from refusal
            self._follow_move(part, str(refusal.message))
        except (FramedError, TException, OSError, ValueError) as error:
            part.failure = f"shard {place.id} did not answer ({error or type(error).__name__})"
            self._connections.forget()
            self._retry(part, error)

    def _follow_move(self, part: SubRequest, text: str) -> None:
        """Ask the shard that the virtual shards moved to."""
        part.failure = f"shard {part.choice.address.id}: {text}"
        self._connections.forget()
        if part.depth < MAX_REDIRECTS:
            self._shards = self._connections.shards()
            part.fallbacks, _ = self._begin(part.choice.vshards, frozenset(), part.depth + 1)

    def _retry(self, part: SubRequest, error: Exception) -> None:
        """Ask others; retry the same shard once if its connection was lost, perhaps while idle."""
        if not (isinstance(error, ConnectionLostError) and part.depth == 0):
            self._connections.avoid(part.choice.address)
            self._ask_others(part, REFILLING)
            return
        nobody = self._ask_others(part, WHOLE)
        again = [place for place in self._shards.live if place == part.choice.address]
        if nobody and again and part.fallbacks is not None:
            same = SubRequest(HolderChoice(again[0], nobody), self._clock.monotonic(), 1)
            self._connections.start(same, self._question, self._deadline)
            part.fallbacks.append(same)

    def _ask_others(self, part: SubRequest, worst: int) -> int:
        """Ask untried shards for virtual shards not yet asked for elsewhere; return the mask of those without one."""
        wanted = part.choice.vshards & ~part.fallback_vshards()
        more, nobody = self._begin(wanted, self._tried(part), part.depth + 1, worst) if wanted else ([], 0)
        part.fallbacks = [*(part.fallbacks or ()), *more]
        return nobody

    def _tried(self, part: SubRequest) -> frozenset[ShardAddress]:
        """Return shards that were asked for any of these virtual shards."""
        return frozenset(
            other.choice.address for other in self._all_parts() if other.choice.vshards & part.choice.vshards
        ) | {part.choice.address}

    def _hedge(self, now: float) -> None:
        """Ask others for late parts. Late means later than usual and than another answer to this request; if there is
        none yet, the request may be heavy and gets twice the time. Lagging or refilling shards are asked only for very
        late parts."""
        every = self._all_parts()
        some = any(part.answer is not None for part in every) or len(self._parts) == 1
        late_s = self._hedge_s if some else 2 * self._hedge_s
        for part in every:
            if part.future is None or now - part.since < late_s:
                continue
            very = now - part.since >= max(VERY_LATE_S, 3 * self._hedge_s)
            if part.fallbacks is None or (very and not part.asked_laggards):
                part.asked_laggards = very
                if not self._ask_others(part, REFILLING if very else WHOLE) and part.fallbacks:
                    self._connections.avoid(part.choice.address)

    def _end(self) -> None:
        """Abandon unanswered parts, so that their threads and connections are free for others."""
        for part in self._all_parts():
            self._connections.abandon(part)
            if part.future is not None and not part.future.done():
                part.failure = part.failure or f"shard {part.choice.address.id} did not answer (deadline passed)"
                if not part.future.cancel() and part.client is not None:
                    part.client.abort()

    def _notes(self, missing: int) -> list[str]:
        failures = [(part.choice.vshards, part.failure) for part in self._all_parts() if part.failure]
        return list(missing_notes(self._shards, missing, failures))
