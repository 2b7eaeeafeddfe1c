"""Writer of drop-in files (docs/sources.md "Drop-in files"). A rename replaces the whole file, so readers never see a
partial one. Applications use `bookkeeper.dropin`.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Mapping
from typing import Any, TypeVar

from bookkeeper.runtime import process_settings as settings
from bookkeeper.runtime.wall_clock import now_ms
from bookkeeper.variables.canonical import canonical_unchecked, validate_labels
from bookkeeper.variables.cell import COUNTER, GAUGE
from bookkeeper.variables.process_variables import ProcessVariables
from bookkeeper.variables.snapshot import SnapshotReader, VariableLayout

SUFFIX = ".artimon"
PERIOD_S = 60.0
STEP_BACK_MS = 1_000
_KINDS = {COUNTER: "counter", GAUGE: "gauge"}
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

_START_TIMES: weakref.WeakKeyDictionary[ProcessVariables, tuple[int, int]] = weakref.WeakKeyDictionary()

Self = TypeVar("Self", bound="DropinWriter")

log = logging.getLogger("bookkeeper")


class DropinError(RuntimeError):
    """Drop-in file that cannot be written. The text names the file and says what to do."""


class DropinWriter:
    """Writes the variables of `book` into the drop-in file `<folder>/<name>.artimon`; see bookkeeper.dropin.Writer.

    Locks: `_lock` is held during a write, so that the timestamps of a file only grow."""

    def __init__(
        self,
        name: str | None,
        folder: str | os.PathLike[str] | None,
        *,
        book: ProcessVariables,
        labels: Mapping[str, str] | None = None,
        mode: int = 0o644,
        sync: bool = False,
    ) -> None:
        self._book = book
        if not book.go_offline():
            raise DropinError(
                "this process can be polled already, so its values would arrive twice: make the Writer before the "
                "first write of a variable, set ARTIMON_DISABLED=1, or give the Writer a separate `book`"
            )
        self.path = os.path.join(settings.dropin_folder(folder), _validate_name(name) + SUFFIX)
        self.labels = dict(validate_labels(labels or {}))
        self._mode, self._sync = mode, sync
        self._snapshots = SnapshotReader(self._book)
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._birth_ms = _start_time_of(self._book)
        self._last_ms = 0
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def write(self) -> int:
        """Replace the file by the current variables and return their number."""
        if os.getpid() != self._pid:
            raise DropinError(f"{self.path}: belongs to process {self._pid}: make a Writer with another name")
        with self._lock:
            layout, values = self._snapshots.rows()
            self._last_ms = _later_than(self._last_ms, now_ms())
            text = render(layout, values, self.labels, self._birth_ms, self._last_ms)
            try:
                _replace(self.path, text.encode("utf-8"), self._mode, self._sync)
            except OSError as error:
                raise DropinError(_advice(self.path, error)) from error
        return len(values)

    def start(self: Self, period_s: float = PERIOD_S) -> Self:
        """Write now, then every `period_s` in the background, and once more at exit; failures are logged."""
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(target=self._run, args=(period_s,), name="bookkeeper-dropin", daemon=True)
            self._thread.start()
            atexit.register(self._close_at_exit)
        return self

    def close(self) -> None:
        """End the background thread and write a last time. No effect in a forked child or when repeated."""
        if os.getpid() != self._pid or self._closed.is_set():
            return
        self._closed.set()
        atexit.unregister(self._close_at_exit)
        if self._thread is not None:
            self._thread.join(5.0)
        self.write()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self._close_at_exit()  # a DropinError must not hide the program's own exception

    def _run(self, period_s: float) -> None:
        while True:
            try:
                self.write()
            except DropinError as error:
                log.warning("%s", error)
            if self._closed.wait(period_s):
                return

    def _close_at_exit(self) -> None:
        try:
            self.close()
        except DropinError as error:
            log.warning("%s", error)


def render(layout: VariableLayout, values: list[Any], labels: Mapping[str, str], birth_ms: int, time_ms: int) -> str:
    """Format the text of a drop-in file: docs/sources.md "Drop-in files"."""
    lines = [f"# birth {birth_ms}"]
    told: dict[str, set[int]] = {}
    for cell in layout.cells:
        told.setdefault(cell.name, set()).add(cell.kind)
    for name, kinds in told.items():
        kind = _KINDS.get(min(kinds)) if len(kinds) == 1 else None
        if kind:
            lines.append(f"# kind {name} {kind}")
    for what, by_name in (("unit", layout.units), ("help", layout.help)):
        lines.extend(f"# {what} {name} {' '.join(text.split())}" for name, text in by_name.items())
    for cell, value in zip(layout.cells, values):  # noqa: B905 - `strict` came with Python 3.10
        own = {**labels, **cell.labels} if labels else cell.labels
        lines.append(f"{time_ms} {canonical_unchecked(cell.name, own)} {_value(value)}")
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value.translate(_ESCAPES)}"'
    return repr(value)


def _start_time_of(book: ProcessVariables) -> int:
    """Time at which this process made the first Writer of a book: all its Writers continue the same counts."""
    pid, birth_ms = _START_TIMES.get(book, (0, 0))
    if pid != os.getpid():
        birth_ms = now_ms()
        _START_TIMES[book] = (os.getpid(), birth_ms)
    return birth_ms


def _later_than(last_ms: int, now_ms: int) -> int:
    """Next timestamp: greater than the last one, unless the clock was set back by STEP_BACK_MS or more."""
    return last_ms + 1 if 0 <= last_ms - now_ms < STEP_BACK_MS else now_ms


def _validate_name(name: str | None) -> str:
    try:
        checked = settings.read_settings({}).context if name is None else settings.validate_name("drop-in file", name)
    except settings.SettingsError as error:
        raise DropinError(str(error)) from error
    if checked.startswith(".") or len(checked.encode()) + len(SUFFIX) + 20 > settings.NAME_BYTES:
        raise DropinError(f"drop-in file {checked!r:.80}: do not begin with a dot, use at most 220 bytes")
    return checked


def _replace(path: str, data: bytes, mode: int, sync: bool) -> None:
    folder, base = os.path.split(path)
    scratch = os.path.join(folder, f".{base[: -len(SUFFIX)]}.{os.getpid()}.tmp")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(scratch)  # left by a killed process with the same pid
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    fd = os.open(scratch, flags, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            os.chmod(scratch, mode)
            if sync:
                file.flush()
                os.fsync(fd)
        os.replace(scratch, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(scratch)
        raise


def _advice(path: str, error: OSError) -> str:
    folder = os.path.dirname(path)
    if isinstance(error, FileNotFoundError):
        return f"{path}: folder {folder} does not exist: create it, or name another one with ARTIMON_DROPIN"
    if isinstance(error, PermissionError):
        return f"{path}: no permission to write in {folder}: allow it, or name another folder with ARTIMON_DROPIN"
    return f"{path}: {error.strerror or error}: the old file is unchanged"
