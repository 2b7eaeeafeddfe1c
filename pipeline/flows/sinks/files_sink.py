"""Rolling files, local or on HDFS, that hold each event exactly once after any crash.

After each delivery the files are synced, and a small state file of the agent records the length of each and the
identities it holds. At a restart, data beyond that length was never committed: it is cut off and delivered again. A
committed event batch that is delivered again is recognised by its identity."""

from __future__ import annotations

import gzip
import json
import logging
import os
import re
import secrets
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import Field, field_validator

from artimon.model.batch import BatchError
from pipeline.flows.accepted_ids import AcceptedIds
from pipeline.flows.context import Context
from pipeline.flows.event import Event, EventBatch, events_of
from pipeline.flows.options import Options, is_below
from pipeline.flows.registry import Component, Outside
from pipeline.flows.spi import Encoding, Figures, SinkFailed
from pipeline.rolling_files.file_store import FileStore, LocalStore, StoreError, open_store
from pipeline.rolling_files.rolling_file import RollingFile, recover_length
from pipeline.wal.file_system import LocalFileSystem, read_file, replace_file

log = logging.getLogger(__name__)

_HEADER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]{0,63})\}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._=-]")
_TIME = re.compile(r"%[YmdHMSj]")
_TICK_S = 0.5
_RETRY_S = 5.0
"""Seconds between attempts to finish files of an earlier run."""
_CHUNK_BYTES = 4 * 1024 * 1024


class FilesOptions(Options):
    """`uri`: hdfs://HOST:PORT/folder or file:///folder. `path`: folders below it; `%Y %m %d %H %M` stand for the time
    of the event (its header `time_ms`, else now, UTC), `{host}` for a header. A file is finished, and gets its name,
    after `roll_bytes`, `roll_s`, or `idle_s` without new events; until then its name begins with a dot. At most
    `open_files` are open at the same time. `below`: local folders; a file whose real path would be in none of them is
    not written."""

    uri: str
    path: str = Field(default="%Y-%m-%d/%H", max_length=500)
    prefix: str = Field(default="events", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    encoding: str = "json"
    compression: Literal["none", "gzip"] = "none"
    roll_bytes: int = Field(default=64 * 1024 * 1024, ge=1)
    roll_s: float = Field(default=300.0, gt=0)
    idle_s: float = Field(default=60.0, gt=0)
    open_files: int = Field(default=64, ge=1, le=1_000)
    below: list[str] = Field(default_factory=list)

    @field_validator("uri")
    @classmethod
    def _folder(cls, uri: str) -> str:
        open_store(uri)
        return uri

    @field_validator("path")
    @classmethod
    def _path(cls, path: str) -> str:
        rest = _TIME.sub("", _HEADER.sub("", path))
        if any(part in (".", "..") for part in path.split("/")) or re.search(r"[%{}\\]", rest):
            raise ValueError(f"{path!r}: write folders of letters, digits, %Y %m %d %H %M %S %j and {{header}}")
        return path.strip("/")


@dataclass(slots=True)
class _OpenFile:
    """File being written. `number` makes its name unique in this sink. Invariant: the state records `committed`, never
    the length, since data written after the last commit is delivered again after a failure."""

    folder: str
    number: int
    rolling_file: RollingFile
    """Once closed it accepts no data, and gets its name when its content is committed."""
    opened_at: float
    written_at: float
    committed: int = 0


class FilesSink:
    """Delivered means: synced, in a file that will be finished even if the agent ends now.

    Locks: `_lock` guards the files and the state; it is held during writes."""

    def __init__(self, options: FilesOptions, context: Context) -> None:
        self._options, self._context, self._clock = options, context, context.clock
        self._store: FileStore = open_store(options.uri)
        self._encoding: Encoding = context.encodings.encoding(options.encoding, context)
        self._ending = f".{options.encoding}" + (".gz" if options.compression == "gzip" else "")
        name = context.component or "files"
        self._path = context.folder / f"{_UNSAFE.sub('_', name)}.files.json"
        self._lock = threading.Lock()
        self._open: dict[str, _OpenFile] = {}
        self._accepted, self._next = AcceptedIds(), 0
        self._series = secrets.token_hex(4)
        """Random part of the names, so that a sink that lost its state never meets an existing file."""
        self._left: list[dict[str, Any]] = []
        """Files of an earlier run, or from before a failure, that are not finished."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.counts: Counter[str] = Counter()
        self.problem = ""

    def start(self) -> None:
        """Load the state; the watch thread or the first delivery finishes the files of the last run."""
        self._left = self._load()
        self._stop.clear()
        self._thread = threading.Thread(target=self._finish_due_files, name="files", daemon=True)
        self._thread.start()

    def deliver(self, event_batches: Sequence[EventBatch]) -> None:
        """Raises SinkFailed."""
        with self._lock:
            try:
                self._recover()
                self._write(self._without_repeats(event_batches))
            except BatchError as error:
                raise SinkFailed(str(error), retry=False) from error
            except OSError as error:
                self._failed(error)
                raise SinkFailed(str(error)) from error
            self.problem = ""

    def stop(self, deadline_s: float) -> None:
        """Finish the files; the next start finishes those that take too long."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(deadline_s / 2)
        if self._lock.acquire(timeout=deadline_s / 2):
            try:
                self._roll(list(self._open), self._clock.monotonic() + deadline_s / 2)
            except OSError as error:
                log.warning("sink files: %s", error)
            finally:
                self._lock.release()

    def figures(self) -> Figures:
        problems = [self.problem] if self.problem else []
        return {"open": len(self._open), **self.counts, "problems": problems}

    # -- writing, under the lock

    def _without_repeats(self, event_batches: Sequence[EventBatch]) -> list[EventBatch]:
        """Return the event batches that no file holds. Raises BatchError for samples, which are not events."""
        fresh: dict[object, EventBatch] = {}
        for event_batch in event_batches:
            if event_batch.data is not None and not events_of(event_batch):
                raise BatchError(f"{event_batch.id} holds no events: the sink files takes only events")
            if event_batch.id is None or not self._accepted.has(event_batch.id):
                fresh.setdefault(event_batch.id or id(event_batch), event_batch)
        self.counts["repeats"] += len(event_batches) - len(fresh)
        return list(fresh.values())

    def _write(self, event_batches: Sequence[EventBatch]) -> None:
        if not event_batches:
            return
        placed: dict[str, list[Event]] = {}
        for event_batch in event_batches:
            for event in events_of(event_batch):
                placed.setdefault(self._folder(event), []).append(event)
        for folder, events in placed.items():
            self._append(folder, events)
            self._context.progress()
        self._commit(event_batches)
        self.counts["events"] += sum(map(len, placed.values()))
        self._roll([f for f, file in self._open.items() if self._is_full(file.rolling_file)])

    def _commit(self, event_batches: Sequence[EventBatch]) -> None:
        """Save lengths and identities together, atomically."""
        now_ms = self._clock.now_ms()
        for event_batch in event_batches:
            if event_batch.id is not None:
                self._accepted.add(event_batch.id, now_ms)
        self._accepted.forget_silent(now_ms)
        for file in self._open.values():
            file.committed = file.rolling_file.length
        self._save()

    def _append(self, folder: str, events: list[Event]) -> None:
        file = self._open.get(folder) or self._create(folder)
        data = self._encoding.encode(events)
        if self._options.compression == "gzip":
            data = gzip.compress(data, 6, mtime=0)  # gzip members may be concatenated
        file.rolling_file.write(data)
        file.rolling_file.sync()
        file.written_at = self._clock.monotonic()
        self.counts["bytes"] += len(data)

    def _create(self, folder: str) -> _OpenFile:
        self._check_place(folder)
        live = [f for f, file in self._open.items() if not file.rolling_file.closed]
        if len(live) >= self._options.open_files:
            self._make_room(min(live, key=lambda f: self._open[f].written_at))
        now, number = self._clock.monotonic(), self._next
        self._next += 1
        self._save()  # the number is used, even if the file is never created
        file = _OpenFile(folder, number, RollingFile(self._store, self._open_name(folder, number)), now, now)
        self._open[folder] = file
        return file

    def _check_place(self, folder: str) -> None:
        """Raises StoreError if a link leads out of the folders that the sink is confined to."""
        if isinstance(self._store, LocalStore):
            place = os.path.join(self._store.root, folder)
            if not is_below(place, self._options.below):
                raise StoreError(f"{place} is not below {', '.join(self._options.below)}: nothing is written there")

    def _make_room(self, folder: str) -> None:
        file = self._open[folder]
        if file.rolling_file.length == file.committed:
            self._roll([folder])
        else:  # it holds data of this delivery: finish it only after the commit
            file.rolling_file.close()

    def _roll(self, folders: Iterable[str], until: float | None = None) -> None:
        """Finish these files. Precondition: their content is committed. At `until` (monotonic seconds) the rest is left
        to the next start."""
        for folder in folders:
            file = self._open[folder]
            if until is not None and self._clock.monotonic() > until:
                file.rolling_file.abandon()
                continue
            file.rolling_file.close_as(self._name(folder, file.number))
            del self._open[folder]
            self.counts["files"] += 1
            self._save()
            self._context.progress()

    def _failed(self, error: OSError) -> None:
        self.problem = str(error)
        try:
            self._abandon()
        except OSError as worse:
            self.problem = str(worse)

    def _abandon(self) -> None:
        """Close all files after a failure: data beyond the committed lengths was not delivered."""
        for file in self._open.values():
            file.rolling_file.abandon()
        self._open.clear()
        self._left = self._load()

    def _recover(self) -> None:
        """Finish the files of an earlier run at the lengths in the state."""
        while self._left:
            one = self._left[0]
            self._finish(str(one["folder"]), int(one["number"]), int(one["length"]))
            self._left.pop(0)
            self._save()
            self._context.progress()

    def _finish(self, folder: str, number: int, length: int) -> None:
        """Finish one file; safe to interrupt and repeat. Raises StoreError while that is not possible yet."""
        from_, to = self._open_name(folder, number), self._name(folder, number)
        there = {stored.path.rsplit("/", 1)[-1] for stored in self._store.list_folder(folder)}
        if from_.rsplit("/", 1)[-1] not in there:
            return  # renamed before the state was saved
        durable = recover_length(self._store, from_)
        if durable is None:
            raise StoreError(f"{from_} in {self._store.uri} still has a writer")
        if to.rsplit("/", 1)[-1] not in there and length:
            if durable == length:
                self._store.rename(from_, to)
                self.counts["files"] += 1
                return
            self._copy_prefix(from_, to, length, f"{from_}.cut".rsplit("/", 1)[-1] in there)
        self._store.delete(from_)

    def _copy_prefix(self, from_: str, to: str, length: int, begun: bool) -> None:
        """Copy the first `length` bytes to the name `to`; `from_` stays until the copy is complete."""
        data, copy = self._store.read(from_)[:length], f"{from_}.cut"
        if len(data) < length:
            log.error("%s in %s has %d bytes instead of %d", from_, self._store.uri, len(data), length)
            self.counts["short"] += 1
        if begun:
            self._store.recover_lease(copy)
            self._store.delete(copy)
        writing = RollingFile(self._store, copy)
        for at in range(0, len(data), _CHUNK_BYTES):
            writing.write(data[at : at + _CHUNK_BYTES])
        writing.close_as(to)
        self.counts["cut"] += 1
        self.counts["files"] += 1

    # -- names

    def _folder(self, event: Event) -> str:
        text = event.headers.get("time_ms", "")
        ms = int(text) if text.isascii() and text.isdigit() and len(text) <= 14 else self._clock.now_ms()
        at = datetime.fromtimestamp(ms / 1000, UTC)
        path = _TIME.sub(lambda found: at.strftime(found[0]), self._options.path)
        return _HEADER.sub(lambda found: _safe_component(event.headers.get(found[1], "")), path)

    def _name(self, folder: str, number: int) -> str:
        stem = f"{self._options.prefix}.{_safe_component(self._context.agent)}.{_safe_component(self._context.flow)}"
        return f"{folder}/{stem}.{self._series}.{number:06d}{self._ending}".lstrip("/")

    def _open_name(self, folder: str, number: int) -> str:
        head, _, name = self._name(folder, number).rpartition("/")
        return f"{head}/.{name}.open".lstrip("/")

    # -- state

    def _describe_file(self, file: _OpenFile) -> dict[str, Any]:
        return {"folder": file.folder, "number": file.number, "length": file.committed}

    def _save(self) -> None:
        files = [*self._left, *(self._describe_file(file) for file in self._open.values())]
        body = {"version": 1, "series": self._series, "next": self._next, "files": files}
        body["seen"] = self._accepted.encode().decode()
        replace_file(LocalFileSystem(), self._path, json.dumps(body).encode())

    def _load(self) -> list[dict[str, Any]]:
        if not os.path.exists(self._path):
            self._accepted = AcceptedIds()
            return []
        try:
            body = json.loads(read_file(LocalFileSystem(), self._path))
            self._accepted, self._next = AcceptedIds.decode(body["seen"].encode()), int(body["next"])
            self._series = str(body["series"])
            return [dict(one) for one in body["files"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            text = f"{self._path} cannot be read ({error}): move it away; events may then be repeated"
            raise StoreError(text) from error

    def _finish_due_files(self) -> None:
        """Thread that finishes files that are old or idle, or left by an earlier run."""
        again = self._clock.monotonic()
        while not self._clock.wait(self._stop, _TICK_S):
            with self._lock:
                now = self._clock.monotonic()
                try:
                    if self._left and now >= again:
                        again = now + _RETRY_S
                        self._recover()
                    self._roll([folder for folder, file in self._open.items() if self._is_due(file, now)])
                except OSError as error:
                    log.warning("sink files: %s", error)
                    self._failed(error)
                except Exception:
                    log.exception("sink files: unexpected error")  # the thread must go on: it finishes the files

    def _is_full(self, writing: RollingFile) -> bool:
        return writing.closed or writing.length >= self._options.roll_bytes

    def _is_due(self, file: _OpenFile, now: float) -> bool:
        return now - file.opened_at >= self._options.roll_s or now - file.written_at >= self._options.idle_s


def _safe_component(text: str) -> str:
    """Return a header as a path component without separators or dot names."""
    found = _UNSAFE.sub("_", text)[:100]
    return found if found.strip(".") else "_"


FILES = Component("files", FilesOptions, FilesSink, outside={"uri": Outside.WRITE, "below": Outside.HOST})
