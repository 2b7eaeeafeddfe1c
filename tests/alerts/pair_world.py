"""Two engines as processes, receivers that keep a ledger and lose answers, and faults between them."""

from __future__ import annotations

import email
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller

from alerts.pair.state_log import StateLog
from alerts.receivers.webhook import ID_HEADER
from alerts.state.alert_database import open_database
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.topic_spec import platform_topics
from artimon.runtime.health import read_health
from artimon.stack.topics import make_topics
from tests.alerts.cut_proxy import CutProxy
from tests.alerts.mailboxes import free_port
from tests.alerts.pair_engine import MINUTE, START, down
from tests.waiting import eventually

Told = tuple[str, str, str, str]
"""Target, status, start and end of the only alert of a message."""


@dataclass
class Ledger:
    """All that receivers took, in order: identity and content. `lossy`: probability that an answer is lost."""

    rng: random.Random
    lossy: float = 0.0
    taken: list[tuple[str, Told | str]] = field(default_factory=list)
    lost_answers: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, id: str, told: Told | str) -> bool:
        """Note a message; False if the answer is to be lost."""
        with self._lock:
            self.taken.append((id, told))
            lost = self.rng.random() < self.lossy
            self.lost_answers += lost
        return not lost

    @property
    def ids(self) -> Counter[str]:
        with self._lock:
            return Counter(id for id, _ in self.taken)

    def repeats(self) -> int:
        """Messages that came again with the same identity."""
        return sum(self.ids.values()) - len(self.ids)

    def contents(self) -> dict[Told | str, set[str]]:
        """Content -> identities under which it came."""
        found: dict[Told | str, set[str]] = defaultdict(set)
        with self._lock:
            for id, told in self.taken:
                found[told].add(id)
        return found


class LedgerSmtp:
    """Handler of aiosmtpd: keeps letters; sometimes it closes the connection in place of the 250."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        letter = email.message_from_bytes(envelope.content)
        id = str(letter["Message-ID"]).strip("<>").partition("@")[0].removeprefix("artimon.")
        if not self._ledger.take(f"{id}:{envelope.rcpt_tos[0]}", f"{id}:{envelope.rcpt_tos[0]}"):
            server.transport.abort()
        return "250 OK"


@contextmanager
def receivers(ledger: Ledger) -> Iterator[tuple[str, str]]:
    """(host:port of SMTP, URL of webhooks) of servers that write the ledger."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            (alert,) = body["alerts"]
            told = (self.path, str(alert["status"]), str(alert["startsAt"]), str(alert["endsAt"]))
            here = f"webhook:http://127.0.0.1:{web.server_address[1]}{self.path}"
            if not ledger.take(f"{self.headers[ID_HEADER]}:{here}", told):
                self.connection.close()
                return
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

        def finish(self) -> None:
            with suppress(OSError, ValueError):
                super().finish()

    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=web.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    smtp = Controller(LedgerSmtp(ledger), hostname="127.0.0.1", port=free_port())
    smtp.start()
    try:
        yield f"127.0.0.1:{smtp.port}", f"http://127.0.0.1:{web.server_address[1]}"
    finally:
        smtp.stop()
        web.shutdown()
        web.server_close()
        thread.join(10)


class PairEngine:
    """One engine: its process, its proxies to ZooKeeper and Kafka, its folder."""

    def __init__(self, world: PairWorld, id: str) -> None:
        self.id, self._world = id, world
        self.folder = world.folder / id
        self.folder.mkdir()
        self.to_zookeeper, self.to_kafka = CutProxy(world.zookeeper), CutProxy(world.kafka)
        self._process: subprocess.Popen[bytes] | None = None
        self.stopped = False

    def start(self) -> None:
        """Start the process."""
        (self.folder / "health.json").unlink(missing_ok=True)  # it tells of the process before
        world = self._world
        config = {
            "folder": str(self.folder), "rules": str(world.rules), "id": self.id, "pair": "p",
            "zookeeper": self.to_zookeeper.address, "kafka": world.kafka, "prefix": world.prefix,
            "ways": {world.kafka.rpartition(":")[2]: self.to_kafka.port}, "smtp": world.smtp,
            "zero": world.zero, "speed": world.speed, "lease_ms": world.lease_ms, "plan": world.plan,
        }  # fmt: skip
        file = self.folder / "config.json"
        file.write_text(json.dumps(config))
        with (self.folder / "log").open("ab") as out:
            command = [sys.executable, "-m", "tests.alerts.pair_engine", str(file)]
            self._process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End it as by kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def stop(self) -> None:
        """Stop it (SIGSTOP)."""
        if self._process is not None:
            self.stopped = True
            os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Continue it (SIGCONT)."""
        if self._process is not None and self.stopped:
            self.stopped = False
            os.kill(self._process.pid, signal.SIGCONT)

    def end(self) -> None:
        """End it in order (SIGTERM)."""
        if self._process is not None and self.alive:
            self.go_on()
            self._process.terminate()
            self._process.wait(60)

    def close(self) -> None:
        self.go_on()
        self.kill()
        self.to_zookeeper.close()
        self.to_kafka.close()

    @property
    def figures(self) -> dict[str, Any]:
        """Figures of its health file."""
        with suppress(ValueError, OSError):
            found = read_health(self.folder / "health.json")
            return {} if found is None else found.figures
        return {}

    @property
    def leads(self) -> bool:
        return bool(self.figures.get("pair", {}).get("leads"))


@dataclass
class PairWorld:
    """Two engines over hosts that fail by a plan. `speed`: minutes pass so much faster; `period`: minutes from one
    failure of a host to the next."""

    folder: Path
    zookeeper: str
    kafka: str
    smtp: str
    web: str
    hosts: int = 4
    period: int = 12
    minutes: int = 240
    quiet: int = 200
    """Minute from which on all hosts are up."""
    speed: float = 30.0
    lease_ms: int = 3_000
    zero: float = 0.0

    def __post_init__(self) -> None:
        self.prefix = f"t{uuid.uuid4().hex[:12]}"
        make_topics(self.kafka, [one for one in platform_topics(self.prefix) if one.name.endswith(".alerts")])
        self.rules = self.folder / "rules"
        self.rules.mkdir()
        self.zero = self.zero or time.time()
        self._write_rules()
        self.engines = [PairEngine(self, id) for id in ("a", "b")]
        self.evaluated: set[int] = set()
        """Ends of the buckets that some engine evaluated, as seen in the health files."""

    @property
    def plan(self) -> list[int]:
        return [self.hosts, self.minutes, self.period, self.quiet]

    def _write_rules(self) -> None:
        lines = ["receivers:"]
        lines += [f"  r{n}: {{webhook: ['{self.web}/h{n}'], mail: [h{n}@example.org]}}" for n in range(self.hosts)]
        lines.append("rules:")
        for n in range(self.hosts):
            lines += [
                f"  - name: down-h{n}",
                f"    expr: fetch('up{{host=\"h{n}\"}}')",
                '    threshold: "< 1"',
                "    for: 1m",
                "    missing: keep",
                f"    receivers: [r{n}]",
                '    summary: "{host} is down"',
            ]
        (self.rules / "rules.yaml").write_text("\n".join(lines) + "\n")

    def minute(self) -> float:
        """Minutes of the plan that have passed."""
        return (time.time() - self.zero) * self.speed / 60

    def watch(self) -> None:
        """Note the newest evaluation of each engine."""
        for one in self.engines:
            if last := one.figures.get("last_ms"):
                self.evaluated.add(int(last))

    def leader(self, *, but: PairEngine | None = None) -> PairEngine:
        """Wait for an engine that leads."""

        def found() -> PairEngine | None:
            self.watch()
            live = (one for one in self.engines if one is not but and one.alive and not one.stopped)
            return next((one for one in live if one.leads), None)

        return eventually(found, "an engine leads")

    def other(self, engine: PairEngine) -> PairEngine:
        return next(one for one in self.engines if one is not engine)

    def until_minute(self, minute: float) -> None:
        """Wait until this minute of the plan."""

        def passed() -> bool:
            self.watch()
            return self.minute() >= minute

        eventually(passed, f"minute {minute}", seconds=3_600, pause=0.3)

    def incidents(self, until: float) -> list[tuple[int, int, int]]:
        """(host, first minute down, first minute up) of every failure that ended before `until`."""
        found = []
        for host in range(self.hosts):
            start = 0
            for minute in range(1, int(min(until, self.quiet)) + 1):
                is_down = minute < self.quiet and down(host, minute, self.period)
                if is_down and not start:
                    start = minute
                elif not is_down and start:
                    found.append((host, start, minute))
                    start = 0
        return found

    def close(self) -> None:
        for one in self.engines:
            one.close()


@dataclass(frozen=True)
class Balance:
    """Ledger against plan and journal. `missed`: failures that nobody was told of although an engine evaluated two
    minutes of them, and one before and after; `unseen`: failures of which nobody evaluated that much; `twice`: contents
    under two identities; `unknown`: messages that the journal does not have; `unsent`: letters that nobody got."""

    incidents: int
    missed: list[str]
    unseen: int
    twice: list[str]
    unknown: list[str]
    unsent: list[str]
    messages: int
    repeats: int


def balance(world: PairWorld, ledger: Ledger, first: float, until: float) -> Balance:
    """Compare, after all engines have ended, the failures that began after minute `first` and ended before `until`."""
    letters, ids = journalled_letters(world), ledger.ids
    told: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for content in ledger.contents():
        if isinstance(content, tuple):
            path, status, starts, _ = content
            told[int(path[2:])].append((status, _minute_of(starts)))
    evaluated = {(time_ms - START) // MINUTE for time_ms in world.evaluated}
    missed, unseen = [], 0
    incidents = [one for one in world.incidents(until) if one[1] >= first]
    for host, begin, end in incidents:
        seen = sorted(minute for minute in evaluated if begin <= minute < end)
        half = world.period // 2
        if len(seen) < 2 or not all(
            evaluated & set(span) for span in (range(begin - half, begin), range(end, end + half))
        ):
            unseen += 1  # nobody could evaluate it, or the host being up before or after it
            continue
        states = {status for status, minute in told[host] if begin <= minute < end}
        if states != {"firing", "resolved"}:
            missed.append(f"h{host} {begin}-{end}: {sorted(states)}, evaluated {seen}")
    return Balance(
        len(incidents),
        missed,
        unseen,
        [f"{content}: {sorted(found)}" for content, found in ledger.contents().items() if len(found) > 1],
        sorted(id for id in ids if id not in letters),
        sorted(f"{id} {state}" for id, state in letters.items() if state != "merged" and id not in ids),
        len(ids),
        ledger.repeats(),
    )


def journalled_letters(world: PairWorld) -> dict[str, str]:
    """Identity and target of every letter that the journal ever held -> its last state."""
    log = StateLog(world.kafka, f"{world.prefix}.alerts", "p", "test", SYSTEM_CLOCK)
    changes = [change for entry in log.read_to_end() for change in entry.changes]
    assert log.stale == 0, "the broker fences former leaders: nothing of them is in the topic"
    log.close()
    return {str(one.row["key"]): str(one.row["state"]) for one in changes if one.table == "outbox" and one.row}


def rows_of(engine: PairEngine) -> set[str]:
    """Rows of the database of an engine that has ended."""
    database, _, damage = open_database(engine.folder / "data", 0)
    assert not damage, damage
    rows = {repr((one.table, one.key, sorted((one.row or {}).items()))) for one in database.rows()}
    database.close()
    return rows


def _minute_of(text: str) -> int:
    return (round(datetime.fromisoformat(text).timestamp() * 1000) - START) // MINUTE
