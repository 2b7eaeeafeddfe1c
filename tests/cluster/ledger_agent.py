"""The agent of a host as `artimon agent` runs it, with a ledger of digests between its sources and its log:
python -m tests.cluster.ledger_agent LEDGER agent ARGUMENT..."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from artimon import cli
from artimon.cli import agent_process
from artimon.model.batch import PollResult
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.protocols import NewestPoll, Sink, SinkRefusedError
from tests.faults.batches import worth
from tests.faults.ledger import LedgerWriter, Noted
from tests.faults.load import PRODUCE


class DigestSink:
    """Notes what each batch is worth before and after the sink behind it has accepted it. Refuses everything while the
    file `produce` beside the ledger says "0", as a full log does."""

    def __init__(self, behind: Sink, path: Path) -> None:
        self._behind, self._switch = behind, path.with_name(PRODUCE)
        self._ledger = LedgerWriter(path, f"{os.getpid()}-{SYSTEM_CLOCK.now_ms()}")

    async def accept(self, polled: Sequence[PollResult]) -> None:
        """Note, pass on, note again. A batch without samples leaves no row. Raises SinkRefusedError."""
        if self._switch.exists() and self._switch.read_text() == "0":
            raise SinkRefusedError("the test accepts nothing more")
        noted = [Noted(p.source, int(p.samples.time_ms[0]), worth(p.samples)) for p in polled if len(p.samples)]
        numbers = [self._ledger.begin(one) for one in noted]
        await self._behind.accept(polled)
        for number in numbers:
            self._ledger.done(number)

    def replay(self, since: NewestPoll | None = None) -> Iterable[PollResult]:
        """Return the content of the log behind it."""
        return self._behind.replay(since)


def main(ledger: Path, command: list[str]) -> None:
    """Run the command with the ledger in place of none."""
    agent_process.run_agent_process = partial(
        agent_process.run_agent_process, wrap_sink=lambda sink: DigestSink(sink, ledger)
    )
    sys.argv[1:] = command
    cli.main()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
