"""Random histories of a log on a failing disk, and the invariants after every restart.

A batch that was accepted, or delivered after a restart, binds the log: it keeps these bytes until the ack, and its
identity never names anything else."""

from __future__ import annotations

import random
import struct
from functools import cache
from pathlib import Path

from artimon.model.batch import BatchId
from artimon.model.batch_codec import encode_samples, parse_header
from artimon.model.protocols import SinkRefusedError
from pipeline.wal.log_core import AppendRequest, LogCore, LogEntry, LogWriteError
from pipeline.wal.recovery import segment_path, segments_in
from pipeline.wal.segment_format import RecordType
from pipeline.wal.state_records import LogPosition, encode_acked
from tests.crash_disk import CrashDisk, PowerLoss
from tests.pipeline.helpers import AGENT, MINUTE, samples

FOLDER = Path("/data/agent/log")
LANES = 2
SEGMENT = 1800
TOKEN = 16


class Violation(AssertionError):
    """The log broke a promise."""


@cache
def _template() -> bytes:
    id = BatchId(AGENT, 0, 0, 0)
    return encode_samples(id, "source", bytes(16), 1, MINUTE - 1000, "default", samples(1)).data[:-TOKEN] + bytes(TOKEN)


def made(id: BatchId, token: bytes) -> bytes:
    """Message of this identity that ends with `token`; the digest is not checked here."""
    data = bytearray(_template())
    struct.pack_into("<HQQ", data, 6, id.lane, id.epoch, id.sequence)
    data[-TOKEN:] = token
    return bytes(data)


class History:
    """One log, its observers, and a machine that fails. Every choice comes from `rng`."""

    def __init__(self, seed: int, files: CrashDisk, crash_at: int | None = None) -> None:
        """`crash_at`: number of the operation before which the power fails; None: at random."""
        self.rng = random.Random(seed)
        self.files = files
        files.before = self._before
        self.operations = 0
        self.crash_at = crash_at
        self.fail_fsync = 0
        """So many fsyncs of segments from now on fail; -1: all fsyncs until the restart."""
        self.bound: dict[BatchId, bytes] = {}
        """What each identity means, as far as anybody has seen."""
        self.live: dict[BatchId, LogPosition] = {}
        """Accepted, not acked."""
        self.unsure: set[BatchId] = set()
        """Acked, but perhaps not for the log; or perhaps written."""
        self.never: set[bytes] = set()
        """Tokens of what was refused."""
        self.damaged: list[bytes] = []
        """Tokens of batches that rotted."""
        self.tokens = 0
        self.trouble = False
        """A new epoch may begin at the next start."""
        self.notes = False
        """Notes were written and not synced: a power failure may leave half of them."""
        self.host = "here"
        self.log: LogCore = None  # type: ignore[assignment]

    def run(self, steps: int) -> None:
        """Run the whole history, to a last restart after a power failure."""
        self._guarded(self._start)
        for _ in range(steps):
            step = self.rng.choice(self._steps())
            self._guarded(step)
        self._guarded(self._power_off)
        self.crash_at = -1
        self._guarded(self._power_off)

    # -- steps

    def _steps(self) -> list[object]:
        often = [self._append] * 8 + [self._ack] * 3 + [self._more] * 2
        return [
            *often,
            self._kill,
            self._close,
            self._power_off,
            self._rot,
            self._lose,
            self._fail,
            self._full,
            self._move,
        ]

    def _append(self) -> None:
        tickets = [self._ticket() for _ in range(self.rng.choice((1, 1, 2, 4)))]
        self.log.flush()
        self.notes = self.notes and not any(ticket.places for ticket in tickets)
        for ticket in tickets:
            self._settle(ticket)

    def _ticket(self) -> AppendRequest:
        numbers = self.log.next_sequences
        for entry in (entry for ticket in self.log._waiting for entry in ticket.entries):
            numbers[entry.header.id.lane] += 1
        entries = []
        for _ in range(self.rng.choice((1, 1, 3))):
            lane = self.rng.randrange(LANES)
            id = BatchId(AGENT, self.log.epoch, lane, numbers[lane])
            numbers[lane] += 1
            self.tokens += 1
            data = made(id, self.tokens.to_bytes(TOKEN, "big"))
            if self.bound.get(id, data) != data:
                raise Violation(f"{id} is given to a second batch")
            entries.append(LogEntry(RecordType.BATCH, parse_header(data), data))
        ticket = AppendRequest(entries, 0)
        try:
            ticket = self.log.append(entries)
        except SinkRefusedError as error:
            ticket.error = error
        else:  # a crash from here on may keep it or not
            self.unsure.update(entry.header.id for entry in entries)
        return ticket

    def _settle(self, ticket: AppendRequest) -> None:
        for n, entry in enumerate(ticket.entries):
            id = entry.header.id
            if ticket.places is not None:
                self.bound[id] = entry.payload
                self.live[id] = ticket.places[n]
            elif not isinstance(ticket.error, LogWriteError):
                self.never.add(entry.payload[-TOKEN:])
            if not isinstance(ticket.error, LogWriteError):
                self.unsure.discard(id)

    def _ack(self) -> None:
        known = [
            id
            for id, place in self.live.items()
            if self.log.is_recovered or place.segment >= self.log.first_own_segment
        ]
        done = [id for id in known if self.rng.random() < 0.6]
        if self.rng.random() < 0.3:
            done = known
        places = [self.live.pop(id) for id in done]
        self.unsure.update(done)
        self.log.append_notes(RecordType.ACKED, encode_acked(done))
        self.log.release(places)
        if self.rng.random() < 0.5:
            self.notes = True
            self.log.flush()

    def _more(self) -> None:
        """Read one more segment of a lazy log, or all of it."""
        if not self.log.is_recovered and self.log.recover_next_segment():
            before = self.log.epoch
            self.log.finish_recovery()
            self.trouble = self.trouble or before != self.log.epoch
            self._check()

    def _kill(self) -> None:
        self.files.kill()
        self._start()

    def _close(self) -> None:
        self.log.flush()
        self.log.sync()
        self.log.close()
        self._start()

    def _power_off(self) -> None:
        self.trouble = self.trouble or self.notes
        self.files.power_off(self.rng)
        self._start()

    def _rot(self) -> None:
        """Flip one bit of a batch that is still needed; everything but that bit must stay readable."""
        if not self.live or self.rng.random() < 0.5:
            return
        id = self.rng.choice(list(self.live))
        place = self.live.pop(id)
        file = self.files.file(segment_path(FOLDER, place.segment))
        if len(file.durable) < place.offset + place.length or file.pending:
            self.live[id] = place
            return
        at = place.offset - self.rng.randrange(1, 17)
        file.flip(at, 4)
        self.damaged.append(self.bound[id][-TOKEN:])
        self.unsure.add(id)  # the note of its ack may be missing: then it is damage twice
        self.trouble = True
        self._kill()

    def _lose(self) -> None:
        """Delete a whole segment."""
        numbers = segments_in(FOLDER, self.files)[1:]
        if len(numbers) < 2 or self.rng.random() < 0.7:
            return
        number = self.rng.choice(numbers)
        name = segment_path(FOLDER, number).name
        folder = self.files.folder(FOLDER)
        if folder.pending:
            return
        data = self.files.file(FOLDER / name).data
        self.damaged = [token for token in self.damaged if token not in data]
        del folder.entries[name], folder.durable[name]
        gone = {id for id, place in self.live.items() if place.segment == number}
        self.live = {id: place for id, place in self.live.items() if id not in gone}
        self.trouble = True
        self._kill()

    def _fail(self) -> None:
        self.fail_fsync = self.rng.choice((1, 1, 2, -1))
        self._append()
        if self.log.problem:
            self.trouble = True
            with_power = (
                self.fail_fsync < 0 or self.rng.random() < 0.5
            )  # a disk that refused the note is not tried again
            self.fail_fsync = 0
            self.files.power_off(self.rng) if with_power else self.files.kill()
            self._start()
        self.fail_fsync = 0

    def _full(self) -> None:
        self.files.full = True
        try:
            self._append()
        finally:
            self.files.full = False
        if self.rng.random() < 0.5:
            self._power_off()

    def _move(self) -> None:
        if self.rng.random() < 0.3:
            self.host += "e"
            self.trouble = True
            self._kill()

    # -- the machine

    def _before(self, operation: str, path: Path) -> None:
        self.operations += 1
        often = self.crash_at is None and self.rng.random() < 0.02
        if often or self.operations == self.crash_at:
            raise PowerLoss
        if operation == "fsync" and self.fail_fsync and (self.fail_fsync < 0 or path.suffix == ".wal"):
            self.fail_fsync -= 1 if self.fail_fsync > 0 else 0
            raise OSError(5, "Input/output error")

    def _guarded(self, step: object) -> None:
        """Run the operation; the power may fail meanwhile, repeatedly."""
        try:
            step()  # type: ignore[operator]
        except PowerLoss:
            self._after_loss()

    def _after_loss(self) -> None:
        self.trouble = True  # something was being written
        failing = bool(self.fail_fsync) or bool(self.log and self.log.problem)
        self.fail_fsync, self.files.full = 0, False
        while True:
            self.files.power_off(self.rng) if failing or self.rng.random() < 0.7 else self.files.kill()
            failing = False
            try:
                self._start()
            except PowerLoss:
                continue
            return

    def _start(self) -> None:
        self.notes = False
        lazy = self.rng.random() < 0.5
        count = iter(range(1, 10**9))
        base = self.rng.getrandbits(40) << 20
        self.log = LogCore(
            FOLDER,
            AGENT,
            LANES,
            files=self.files,
            segment_bytes=SEGMENT,
            host=self.host,
            lazy=lazy,
            draw=lambda: base + next(count),
        )
        if self.log.new_epoch_because and not self.trouble:
            raise Violation(f"nothing was amiss, but: {self.log.new_epoch_because}")
        self.trouble = not self.log.is_recovered and self.trouble
        if self.log.is_recovered:
            self._check()

    # -- what must hold

    def _check(self) -> None:
        """Check the invariants. The log has read everything that it held when it was opened."""
        self.trouble = False
        held = {header.id: place for header, place in self.log.recovered.batches}
        own = self.log.first_own_segment
        for id, place in self.live.items():
            if place.segment < own and id not in held:
                raise Violation(f"{id} was accepted and is gone")
        for id, place in held.items():
            data = self.log.read(place)
            if data[-TOKEN:] in self.never:
                raise Violation(f"{id} was refused and is delivered")
            if self.bound.setdefault(id, data) != data:
                raise Violation(f"{id} is delivered with other bytes")
            if id not in self.live and id not in self.unsure:
                raise Violation(f"{id} comes from nowhere")
        self.live = {**held, **{id: place for id, place in self.live.items() if place.segment >= own}}
        self.unsure -= self.live.keys()
        everything = b"".join(self._contents(FOLDER)) if self.damaged else b""
        for token in self.damaged:
            if token not in everything:
                raise Violation(f"damaged bytes of {token.hex()} were not kept")

    def _contents(self, folder: Path) -> list[bytes]:
        found = []
        for name in self.files.list_names(folder):
            try:
                with self.files.load(folder / name) as data:
                    found.append(bytes(data))
            except FileNotFoundError:
                found.extend(self._contents(folder / name))
        return found
