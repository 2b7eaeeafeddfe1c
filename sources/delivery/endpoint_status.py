"""Status of each endpoint, as variables of the agent. A process that vanished keeps up = 0 for an hour."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from artimon.model.values import Kind
from sources.state.source_reading import SourceVariable
from sources.state.state_files import replace_file, run_in_thread

UP, POLL_MS, POLL_SAMPLES = "artimon.endpoint.up", "artimon.endpoint.poll.ms", "artimon.endpoint.poll.samples"


@dataclass(slots=True)
class EndpointStatus:
    """Outcome of the last poll of one endpoint. `gone_ms`: time at which it was found to have vanished, else 0."""

    labels: dict[str, str]
    up: bool = False
    poll_ms: float = 0.0
    samples: int = 0
    gone_ms: int = 0


class EndpointStatuses:
    """Key (the source's name once it is known) -> status. Vanished endpoints are kept on disk across restarts."""

    def __init__(self, path: Path, vanished_ms: int) -> None:
        self._path, self._vanished_ms = path, vanished_ms
        self._by_key: dict[str, EndpointStatus] = {}
        self._changed, self._saving = False, asyncio.Lock()

    def load(self) -> None:
        """Read the endpoints that vanished before this start; an unreadable file counts as empty."""
        try:
            content = json.loads(self._path.read_text())
            self._by_key = {key: EndpointStatus(**status) for key, status in content.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            self._by_key = {}

    def record_poll(self, key: str, labels: Mapping[str, str], up: bool, poll_ms: float, samples: int) -> None:
        """Record the outcome of a poll."""
        known = self._by_key.get(key)
        self._changed |= known is not None and known.gone_ms > 0
        self._by_key[key] = EndpointStatus(dict(labels), up, poll_ms, samples)

    def remove(self, key: str) -> None:
        """Remove an endpoint that ended in order or was never identified."""
        self._changed |= self._by_key.pop(key, None) is not None

    def mark_vanished(self, key: str, labels: Mapping[str, str], now_ms: int) -> None:
        """Record that an endpoint ended without notice."""
        self._by_key[key] = EndpointStatus(dict(labels), gone_ms=now_ms)
        self._changed = True

    def counts(self) -> tuple[int, int]:
        """Return the number of endpoints that answered their last poll, and of those that did not."""
        all_ = list(self._by_key.values())  # a copy: the caller may be a thread
        up = sum(status.up for status in all_)
        return up, len(all_) - up

    def list_vanished(self, now_ms: int, limit: int = 10) -> list[str]:
        """Return one sentence for each process that ended without notice, latest first."""
        gone = sorted(((s.gone_ms, key) for key, s in list(self._by_key.items()) if s.gone_ms), reverse=True)
        return [f"{key} ended without notice {max(0, now_ms - at) // 1000} s ago" for at, key in gone[:limit]]

    def variables(self, now_ms: int) -> list[SourceVariable]:
        """Return `up` of every endpoint, and poll time and samples of those that are still polled."""
        self._expire(now_ms)
        return [v for status in self._by_key.values() for v in _variables(status)]

    async def save(self) -> None:
        """Write the vanished endpoints if they changed. Raises OSError; the next call tries again."""
        async with self._saving:
            if not self._changed:
                return
            gone = {key: asdict(status) for key, status in self._by_key.items() if status.gone_ms}
            self._changed = False
            try:
                await run_in_thread(replace_file, self._path, json.dumps(gone).encode())
            except (OSError, asyncio.CancelledError):
                self._changed = True
                raise

    def _expire(self, now_ms: int) -> None:
        for key, status in list(self._by_key.items()):
            if status.gone_ms and now_ms - status.gone_ms > self._vanished_ms:
                self.remove(key)


def _variables(status: EndpointStatus) -> Iterator[SourceVariable]:
    labels = status.labels
    yield SourceVariable(
        UP, labels, int(status.up), Kind.GAUGE, "", "1 if the last poll of the process was answered, else 0"
    )
    if not status.gone_ms:
        yield SourceVariable(POLL_MS, labels, float(status.poll_ms), Kind.GAUGE, "ms", "Time that the last poll took")
        yield SourceVariable(POLL_SAMPLES, labels, status.samples, Kind.GAUGE, "", "Samples that the last poll yielded")
