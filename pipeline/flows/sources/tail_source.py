"""Lines of files that other programs append to; each byte once, across rename, rotation, truncation and restarts."""

from __future__ import annotations

import glob
import logging
import os
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import xxhash
from pydantic import Field

from artimon.model.event import MAX_BODY_BYTES, MAX_EVENTS, RAW_BYTES, event_bytes
from pipeline.flows.context import Context
from pipeline.flows.event import Event
from pipeline.flows.options import Options, is_below
from pipeline.flows.registry import Component, Outside
from pipeline.flows.sources.line_splitter import split_lines
from pipeline.flows.sources.source_journal import PieceIntent, SourceJournal
from pipeline.flows.spi import Figures, Put

log = logging.getLogger(__name__)

HEAD_BYTES = 256
PIECE_BYTES = RAW_BYTES * 3 // 4
"""Most bytes of a file in one piece."""
_HEADERS_BYTES = RAW_BYTES - PIECE_BYTES


class TailOptions(Options):
    """`paths`: files, or patterns such as /var/log/app/*.log. `start`: position in files that exist at the very first
    scan; later files are read from their beginning. `settle_s`: seconds for which a renamed or deleted file must be
    unchanged before its unterminated last line is taken and the file closed. `header`: header with the file's path; ""
    for none. `below`: folders; a file whose real path is in none of them is not read."""

    paths: list[str] = Field(min_length=1, max_length=100)
    start: Literal["beginning", "end"] = "beginning"
    settle_s: float = Field(default=5.0, ge=0, le=3600)
    files: int = Field(default=1_000, ge=1, le=10_000)
    line_bytes: int = Field(default=MAX_BODY_BYTES, ge=1, le=MAX_BODY_BYTES)
    header: str = "file"
    below: list[str] = Field(default_factory=list)


@dataclass(slots=True)
class _FollowedFile:
    """Followed file, under any name. `head`: digest of its first `head_bytes` bytes."""

    path: str
    device: int
    inode: int
    descriptor: int
    position: int = 0
    head: str = ""
    head_bytes: int = 0
    last_size: int = 0
    quiet_since: float | None = None
    """Time since which it is not at its path and has not grown."""

    @property
    def identity(self) -> str:
        return f"{self.device}:{self.inode}"

    def to_state(self) -> dict[str, Any]:
        return {"path": self.path, "position": self.position, "head": self.head, "head_bytes": self.head_bytes}


class TailSource:
    """Pollable. A piece is a number of lines of one file; files take turns."""

    def __init__(self, options: TailOptions, context: Context) -> None:
        self._options, self._context, self._clock = options, context, context.clock
        self._journal: SourceJournal | None = None
        self._files: dict[str, _FollowedFile] = {}
        self._turn: list[str] = []
        self._is_first_scan = True
        self._waiting: tuple[PieceIntent, tuple[Event, ...]] | None = None
        """Piece that the channel refused."""
        self.counts: Counter[str] = Counter()
        self.problem = ""

    def start(self) -> None:
        """Restore the state of the journal. Raises OSError."""
        name = f"tail/{self._context.agent}/{self._context.flow}"
        self._journal = SourceJournal(self._context.folder / "tail.json", self._context.agent, name)
        held = dict(self._journal.state.get("files", {}))
        self._is_first_scan = "files" not in self._journal.state
        for key, state in held.items():
            self._reopen(key, state)

    def poll(self, put: Put) -> bool:
        journal = self._open_journal()
        if journal.pending is not None:
            return self._put_pending(journal, put)
        self.scan()
        for _ in range(len(self._turn)):
            key = self._turn.pop(0)
            file = self._files.get(key)
            if file is None:
                continue
            self._turn.append(key)
            if self._put_piece(journal, file, put):
                return True
        return False

    def stop(self, deadline_s: float) -> None:
        del deadline_s  # nothing here blocks
        for file in self._files.values():
            os.close(file.descriptor)
        self._files.clear()
        if self._journal is not None and self._journal.next:
            self._journal.close()

    def figures(self) -> Figures:
        behind = sum(map(_unread_bytes, list(self._files.values())))
        problems = [p for p in (self.problem, self._journal.problem if self._journal else "") if p]
        return {"files": len(self._files), "behind_bytes": behind, "problems": problems, **self.counts}

    def _open_journal(self) -> SourceJournal:
        if self._journal is None:
            raise RuntimeError("the source was not started")
        return self._journal

    # -- pieces

    def _put_piece(self, journal: SourceJournal, file: _FollowedFile, put: Put) -> bool:
        """Put the next lines of a file, if it has any."""
        data = os.pread(file.descriptor, PIECE_BYTES, file.position)
        final = self._is_finished(file)
        end, lines = self._lines(data, file.path, final)
        if not end:
            if final and _size(file.descriptor) <= file.position:
                self._close_file(file)
            return False
        what = {
            "key": file.identity,
            "from": file.position,
            "to": file.position + end,
            "path": file.path,
            "final": final,
        }
        what["digest"] = xxhash.xxh3_128_hexdigest(data[:end])
        self._note_head(file)
        after = self._state({file.identity: {**file.to_state(), "position": file.position + end}})
        intent = journal.begin(self._clock.now_ms(), what, after)
        file.position += end
        self._waiting = intent, self._events(intent, lines)
        return self._put_pending(journal, put)

    def _put_pending(self, journal: SourceJournal, put: Put) -> bool:
        """Put the pending piece: one that was refused, or that of the previous process."""
        if journal.pending is None:
            return False
        if self._waiting is None:
            events = self._reread(journal.pending)
            if events is None:
                self.counts["unknown"] += 1
                log.error("tail: %s cannot be read again, and may not have been delivered", journal.pending.piece)
                journal.drop()
                return True
            self._waiting = journal.pending, events
        intent, events = self._waiting
        if events:
            put([journal.make_batch(intent, events)])
        journal.commit()
        self._waiting = None
        self.counts["lines"] += len(events)
        self.counts["bytes"] += int(intent.piece["to"]) - int(intent.piece["from"])
        return True

    def _reread(self, intent: PieceIntent) -> tuple[Event, ...] | None:
        """Read the pending piece of the previous process again; None if its file is gone or changed."""
        what = intent.piece
        begin, end = int(what["from"]), int(what["to"])
        file = self._files.get(str(what["key"]))
        data = os.pread(file.descriptor, end - begin, begin) if file else b""
        if file is None or xxhash.xxh3_128_hexdigest(data) != what["digest"]:
            return None  # an identity must not get other bytes
        file.position = max(file.position, end)
        return self._events(intent, self._lines(data, str(what["path"]), bool(what["final"]))[1])

    def _events(self, intent: PieceIntent, lines: list[bytes]) -> tuple[Event, ...]:
        headers = self._headers(str(intent.piece["path"]))
        return tuple(Event(headers, line) for line in lines)

    def _lines(self, data: bytes, path: str, final: bool) -> tuple[int, list[bytes]]:
        """Split as `split_lines`, into at most as many lines as fit into one batch."""
        overhead = event_bytes(Event(self._headers(path), b""))
        return split_lines(data, self._options.line_bytes, final, most=min(MAX_EVENTS, _HEADERS_BYTES // overhead))

    def _headers(self, path: str) -> dict[str, str]:
        name = self._options.header
        return {name: os.fsencode(path).decode(errors="replace")} if name else {}

    # -- files

    def scan(self) -> None:
        """Find new files, and check those that are followed. Precondition: no piece is pending."""
        known, self.problem = set(self._files), ""
        self._find_new()
        for file in list(self._files.values()):
            try:
                self._check(file)
            except OSError as error:  # an unreadable file must not hold up others
                self.problem = f"{file.path}: {error.strerror}"
        if self._is_first_scan or set(self._files) - known:
            # a file that is renamed while the agent is down must be found again
            self._open_journal().save_state(self._state({}))
        self._is_first_scan = False

    def _find_new(self) -> None:
        found: dict[str, str] = {}
        for path in self._matches():
            try:
                about = os.stat(path)
            except OSError:
                continue
            if stat.S_ISREG(about.st_mode):
                found[f"{about.st_dev}:{about.st_ino}"] = path
        for key, path in found.items():
            if key in self._files:
                self._renamed(self._files[key], path)
            else:
                self._follow(path, at_end=self._is_first_scan and self._options.start == "end")

    def _matches(self) -> Iterator[str]:
        for pattern in self._options.paths:
            yield from sorted(glob.glob(pattern))

    def _renamed(self, file: _FollowedFile, path: str) -> None:
        if file.path != path:
            self.counts["renamed"] += 1
            file.path = path

    def _follow(self, path: str, at_end: bool) -> None:
        if len(self._files) >= self._options.files:
            self.problem = f"{path} is not followed: there are {len(self._files)} files already (option files)"
            return
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            self.problem = f"{path}: {error.strerror}"
            return
        if not is_below(f"/proc/self/fd/{descriptor}", self._options.below):  # the open file, so links cannot race
            self.problem = f"{path} is not followed: its real path is not below {', '.join(self._options.below)}"
            os.close(descriptor)
            return
        about = os.fstat(descriptor)
        file = _FollowedFile(path, about.st_dev, about.st_ino, descriptor, about.st_size if at_end else 0)
        self._note_head(file)
        self._files[file.identity] = file
        self._turn.append(file.identity)

    def _reopen(self, key: str, state: dict[str, Any]) -> None:
        """Reopen a file followed before the restart, at its path or under another name in its folder."""
        for path in _siblings(Path(state["path"])):
            try:
                about = os.stat(path)
            except OSError:
                continue
            if f"{about.st_dev}:{about.st_ino}" == key and stat.S_ISREG(about.st_mode):
                self._follow(str(path), at_end=False)
                file = self._files.get(key)
                if file is not None and _digest(file.descriptor, state["head_bytes"]) == state["head"]:
                    file.position = int(state["position"])
                return
        self.counts["gone"] += 1
        log.warning("tail: %s is gone; what was not read, from byte %d on, is lost", state["path"], state["position"])

    def _check(self, file: _FollowedFile) -> None:
        """Read a file from its beginning again if it was truncated or rewritten: it is shorter, or its head differs."""
        anew = _size(file.descriptor) < file.position
        anew = anew or (file.head_bytes > 0 and _digest(file.descriptor, file.head_bytes) != file.head)
        if anew:
            self.counts["truncated"] += 1
            file.position, file.head, file.head_bytes = 0, "", 0

    def _note_head(self, file: _FollowedFile) -> None:
        if file.head_bytes < HEAD_BYTES:
            file.head_bytes = min(HEAD_BYTES, _size(file.descriptor))
            file.head = _digest(file.descriptor, file.head_bytes)

    def _is_finished(self, file: _FollowedFile) -> bool:
        """True if the file was renamed or deleted and has settled: its last line needs no terminator."""
        try:
            about = os.stat(file.path)
            there = (about.st_dev, about.st_ino) == (file.device, file.inode)
        except OSError:
            there = False
        now, size = self._clock.monotonic(), _size(file.descriptor)
        if there:
            file.quiet_since = None
        elif file.quiet_since is None or size != file.last_size:
            file.quiet_since = now
        file.last_size = size
        return file.quiet_since is not None and now - file.quiet_since >= self._options.settle_s

    def _close_file(self, file: _FollowedFile) -> None:
        os.close(file.descriptor)
        del self._files[file.identity]
        self.counts["left"] += 1

    def _state(self, changed: dict[str, dict[str, Any]]) -> dict[str, Any]:
        return {"files": {**{key: file.to_state() for key, file in self._files.items()}, **changed}}


def _siblings(path: Path) -> Iterator[Path]:
    """Yield the path itself, then all other entries of its folder."""
    yield path
    try:
        yield from sorted(entry for entry in path.parent.iterdir() if entry != path)
    except OSError:
        return


def _unread_bytes(file: _FollowedFile) -> int:
    """Return the unread bytes; 0 for a file that is closed concurrently."""
    try:
        return max(0, _size(file.descriptor) - file.position)
    except OSError:
        return 0


def _size(descriptor: int) -> int:
    return os.fstat(descriptor).st_size


def _digest(descriptor: int, length: int) -> str:
    return xxhash.xxh3_64_hexdigest(os.pread(descriptor, length, 0))


TAIL = Component("tail", TailOptions, TailSource, outside={"paths": Outside.READ, "below": Outside.HOST})
