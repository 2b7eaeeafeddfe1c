"""Journal by which a source of files or topics hands over each piece exactly once, after any crash.

Before a piece is put, the journal durably gives it an identity. After a crash the same piece is read again and put
under the same identity, and the channel drops it if it is a repeat. So such a source needs no acks: one small file,
replaced whole before each put."""

from __future__ import annotations

import json
import logging
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from artimon.model.batch import BatchId
from artimon.model.event_codec import encode_events
from pipeline.flows.event import Event, EventBatch
from pipeline.wal.file_system import FileSystem, LocalFileSystem, read_file, replace_file

log = logging.getLogger(__name__)

SourceState = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PieceIntent:
    """Piece to be put: its number, the time it was read (epoch ms), and what the source needs to read the same bytes
    again."""

    sequence: int
    time_ms: int
    piece: SourceState


class SourceJournal:
    """State of one source. Used by one thread.

    Invariant: equal identities have equal bytes, because these depend only on the `PieceIntent` and what it names."""

    def __init__(self, path: Path, agent: str, source: str, files: FileSystem | None = None) -> None:
        """Read the file at `path`. A damaged file is renamed, and a new epoch begins: pieces may then be repeated,
        which `problem` says."""
        self._path, self._agent, self._source = path, agent, source
        self._files = files or LocalFileSystem()
        self.epoch, self.next = secrets.randbits(64), 0
        self.state: SourceState = {}
        """State of the source after the newest piece that was put."""
        self.pending: PieceIntent | None = None
        """Piece that may or may not have been put."""
        self._state_after: SourceState = {}
        self.problem = ""
        if self._files.exists(path):
            self._load()

    def begin(self, time_ms: int, what: SourceState, after: SourceState) -> PieceIntent:
        """Record the next piece durably. `after`: the state once it has been put. Raises OSError."""
        intent, before = PieceIntent(self.next, time_ms, what), (self.next, self.pending, self._state_after)
        self.next, self.pending, self._state_after = self.next + 1, intent, after
        try:
            self._save()
        except BaseException:  # a piece that is not on the disk must not be put
            self.next, self.pending, self._state_after = before
            raise
        return intent

    def commit(self) -> None:
        """Confirm the pending piece. Durable with the next piece, or `close`; until then it may be put again."""
        self.state, self.pending = self._state_after, None

    def drop(self) -> None:
        """Drop the pending piece, which cannot be read again: whether it was put is unknown."""
        self.commit()

    def make_batch(self, intent: PieceIntent, events: tuple[Event, ...], part: int = 0) -> EventBatch:
        """Return the event batch of a piece, or of one of its parts; the bytes are always the same."""
        id = BatchId(self._agent, self.epoch, part, intent.sequence)
        return EventBatch(events, id, encode_events(id, self._source, intent.time_ms, events).data)

    def save_state(self, state: SourceState) -> None:
        """Record the state without a piece, durably. Precondition: no piece is pending. Raises OSError."""
        self.state = state
        self._save()

    def close(self) -> None:
        """Save the state. Raises OSError."""
        self._save()

    def _save(self) -> None:
        pending = self.pending
        body = {
            "epoch": self.epoch,
            "next": self.next,
            "state": self.state,
            "pending": None if pending is None else [pending.sequence, pending.time_ms, pending.piece],
            "after": self._state_after,
        }
        text = json.dumps(body, separators=(",", ":")).encode()
        replace_file(self._files, self._path, xxhash.xxh3_128_hexdigest(text).encode() + b"\n" + text)

    def _load(self) -> None:
        digest, _, text = read_file(self._files, self._path).partition(b"\n")
        try:
            if xxhash.xxh3_128_hexdigest(text).encode() != digest:
                raise ValueError("the digest is wrong")
            body = json.loads(text)
            pending = body["pending"]
            self.epoch, self.next = int(body["epoch"]), int(body["next"])
            self.state, self._state_after = dict(body["state"]), dict(body["after"])
            self.pending = None if pending is None else PieceIntent(int(pending[0]), int(pending[1]), dict(pending[2]))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            aside = self._path.with_name(self._path.name + ".damaged")
            self._files.replace(self._path, aside)
            self.problem = f"{self._path} could not be read ({error}) and was renamed: data read before may come again"
            log.error("%s", self.problem)
