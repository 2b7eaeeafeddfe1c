"""The stack under load, and the proof that the table holds exactly what was accepted."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime.health import read_health
from artimon.stack.stack import Stack
from tests.faults.earlier import write_earlier
from tests.faults.ledger import Ledger, read_ledgers
from tests.faults.load import PRODUCE
from tests.faults.parts import HDFS_PROXY, ORDERS, SecondSpark, fault_parts
from tests.faults.stored import Stored, differences, settle
from tests.waiting import eventually

SERVERS = ["zookeeper", "brokers", "hdfs"]
BASE_PORT = 31_000
FREE_BYTES = 12 * 1024**3
"""Below that much free disk no test goes on."""
SECOND = SecondSpark.name


@dataclass(frozen=True, slots=True)
class Proof:
    """Result of a run. `rate`: samples accepted a second of the whole time in which the load was to produce; bytes
    and what follows: of the last life of the agents and of the driver."""

    rows: int
    unknown: int
    rate: float
    refusals: int
    blocked_s: float
    accepted_bytes: int
    carried_bytes: int
    resent_batches: int
    duplicates: int
    dead_letters: int
    gaps: int
    drain_s: float
    files: int

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:,}" for name, value in asdict(self).items())


class World:
    """A context manager: the stack with its load, which does not produce yet."""

    def __init__(
        self, folder: Path, options: Mapping[str, str], *, earlier: int = 0, proxy: int = 0, shards: int = 2
    ) -> None:
        """`earlier`: so many batches in each of six hours that are over. `proxy`: port of the way to the NameNode."""
        chosen = {"raw_interval": "5s", "keep": "*=400", **options}
        if proxy:
            chosen[HDFS_PROXY] = f"hdfs://127.0.0.1:{proxy}"
        self.stack = Stack(folder, SERVERS, base_port=BASE_PORT, options=chosen)
        self.stack.parts += fault_parts(shards)
        self.ledger, self.earlier = Ledger(), earlier
        self._produced_s, self._since, self._earlier_rows = 0.0, 0.0, 0
        self.on_ports: Callable[[Mapping[str, int]], None] = lambda _ports: None
        """Called once the ports are known."""

    def __enter__(self) -> Self:
        self.stack.start()
        try:
            self.on_ports(self.stack.context.ports)
            self.stack.stop_part(SECOND)
            if self.earlier:
                self.stack.wait_healthy(180, ["kafka"])
                write_earlier(self.stack.kafka, self.earlier, self.ledger)
                self._earlier_rows = self.ledger.rows
            self.stack.wait_healthy(300)
        except BaseException:
            self.stack.stop()
            raise
        self.stored = Stored(self.stack.hdfs)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stack.stop()

    def produce(self, wanted: bool = True) -> None:
        """Let the load accept more, or only carry on what it has."""
        now = SYSTEM_CLOCK.monotonic()
        self._produced_s += now - self._since if self._since else 0.0
        self._since = now if wanted else 0.0
        path = self.stack.data / "load" / PRODUCE
        fresh = path.with_suffix(".new")
        fresh.write_text("1" if wanted else "0")
        fresh.replace(path)

    def order(self, part: str, point: str, what: str = "kill") -> Path:
        """Tell a probed part to kill or stop itself at the next `point`; the file that appears once it has."""
        folder = self.stack.data / ORDERS
        folder.mkdir(exist_ok=True)
        done = folder / f"{part}.{point}.done"
        done.unlink(missing_ok=True)
        fresh = folder / f"{part}.{point}.new"
        fresh.write_text(what)
        fresh.rename(folder / f"{part}.{point}")
        return done

    def figures(self, part: str) -> dict[str, Any]:
        """Return the health report of a part, {} if there is none."""
        health = read_health(self.stack.context.health(part))
        return health.figures if health else {}

    def append(self, part: str = "spark") -> int:
        """Number of the newest append that a driver knows."""
        return int(self.figures(part).get("raw", {}).get("append", 0))

    def applied(self) -> int:
        """Samples that all shards together have applied."""
        return sum(int(self.figures(f"shard-{n}").get("applied", 0)) for n in range(2))

    def wait_appends(self, count: int, seconds: float = 300, part: str = "spark") -> None:
        """Until a driver has seen `count` more appends."""
        before = self.append(part)
        eventually(lambda: self.append(part) >= before + count, f"{count} appends of {part}", seconds)

    def pending(self) -> int:
        """Batches that agents still keep; -1 if they do not say."""
        return int(self.figures("load").get("pending_batches", -1))

    def prove(self, seconds: float = 600) -> Proof:
        """Stop accepting, wait until everything is acked, compare. Raises AssertionError."""
        check_disk(self.stack.data)
        self.produce(False)
        began = SYSTEM_CLOCK.monotonic()
        SYSTEM_CLOCK.wait(threading.Event(), 1.5)  # the load sees the switch, and says how it is
        eventually(lambda: self.pending() == 0, "everything is acked", seconds)
        drained = SYSTEM_CLOCK.monotonic() - began
        expected = Ledger(dict(self.ledger.accepted))
        read_ledgers(self.stack.data / "load", expected)
        unknown = len(expected.unknown)
        eventually(lambda: self._rows() >= expected.rows, "earlier batches are stored")
        settle(expected, self.stored)
        wrong = differences(expected.accepted, self.stored.digests())
        assert not wrong, f"{len(wrong)} sources differ: " + "; ".join(wrong[:5])
        assert expected.rows, "nothing was accepted"
        load, raw = self.figures("load"), self.figures("spark").get("raw", {})
        assert not load.get("damaged_batches"), "the disk gave batches back damaged"
        return Proof(
            rows=expected.rows,
            unknown=unknown,
            rate=round((expected.rows - self._earlier_rows) / max(0.1, self._produced_s)),
            refusals=load["refusals"],
            blocked_s=load["blocked_s"],
            accepted_bytes=load["accepted_bytes"],
            carried_bytes=load["carried_bytes"],
            resent_batches=load["resent_batches"],
            duplicates=int(raw.get("duplicates", 0)),
            dead_letters=int(raw.get("dead_letters", 0)),
            gaps=len(raw.get("gaps", ())),
            drain_s=round(drained, 1),
            files=len(self.stored.files),
        )

    def sources(self) -> list[str]:
        """All sources of which anything was accepted."""
        expected = Ledger(dict(self.ledger.accepted))
        read_ledgers(self.stack.data / "load", expected)
        return sorted(expected.accepted)

    def _rows(self) -> int:
        return int(self.figures("spark").get("raw", {}).get("rows", 0))


def check_disk(folder: Path) -> None:
    """Fails while there is still room for the end of the run."""
    free = shutil.disk_usage(folder).free
    assert free > FREE_BYTES, f"{free:,} bytes are free, {FREE_BYTES:,} are needed"
