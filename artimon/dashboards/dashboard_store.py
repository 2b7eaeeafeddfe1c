"""Folder of dashboards: NAME.yaml beside `.versions/NAME`, over the read-only dashboards of the package.

A change names the state that it was made from, by its ETag; another change in between is a conflict. The files may be
edited by others, too, such as a version control: what they wrote becomes a version before it is replaced."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from artimon.dashboards.dashboard_file import MAX_BYTES, Dashboard, append_panel, check_name, read_dashboard
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.runtime.config_file import ConfigFileError, read_config_text
from artimon.runtime.file_lock import exclusive_lock

SUFFIX = ".yaml"
VERSIONS = ".versions"
MAX_DASHBOARDS, MAX_VERSIONS = 1_000, 50
MAX_HISTORIES = 2 * MAX_DASHBOARDS
"""Names with versions, those of deleted dashboards too."""
_VERSION = re.compile(r"(\d{6})\.json")


class DashboardNotFoundError(LookupError):
    """No dashboard or version of this name."""


class DashboardConflictError(RuntimeError):
    """Another change came first, or the name is taken."""


class ReadOnlyDashboardsError(RuntimeError):
    """No folder for dashboards is configured."""


class DashboardLimitError(RuntimeError):
    """The folder holds as many dashboards as it may."""


@dataclass(frozen=True, slots=True)
class DashboardText:
    """Text of a dashboard. `is_shipped`: that of the package."""

    name: str
    text: str
    is_shipped: bool

    @property
    def etag(self) -> str:
        """Digest of the text."""
        return etag_of(self.text)

    @property
    def file(self) -> str:
        """Name in errors."""
        return f"{self.name}{SUFFIX}"

    def read(self) -> Dashboard:
        """Return the content. Raises ConfigFileError."""
        return read_dashboard(self.text, self.file)


@dataclass(frozen=True, slots=True)
class DashboardVersion:
    """Saved text. `user`: who saved it, "" for a change of the file outside; `text` None after a deletion."""

    number: int
    time_ms: int
    user: str
    text: str | None


def etag_of(text: str) -> str:
    """Return the ETag of a text, without quotes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def read_shipped() -> dict[str, DashboardText]:
    """Return the dashboards of the package by name."""
    found = sorted(files("artimon.dashboards").joinpath("shipped").iterdir(), key=lambda one: one.name)
    names = [(one, one.name.removesuffix(SUFFIX)) for one in found if one.name.endswith(SUFFIX)]
    return {name: DashboardText(name, one.read_text("utf-8"), True) for one, name in names}


class DashboardStore:
    """Dashboards of the package, and those of `folder`, which hide them; without a folder all are read-only."""

    def __init__(self, folder: Path | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._folder, self._clock = folder, clock
        self._shipped = read_shipped()
        self._lock = threading.Lock()

    @property
    def is_writable(self) -> bool:
        """True if there is a folder."""
        return self._folder is not None

    def names(self) -> list[str]:
        """Return the names of all dashboards, sorted; files with other names are not dashboards."""
        return sorted({*self._shipped, *self._own_names()})

    def _own_names(self) -> list[str]:
        found: list[str] = []
        with suppress(FileNotFoundError, NotADirectoryError):
            for one in os.listdir(self._folder) if self._folder else ():
                with suppress(ValueError):
                    if one.endswith(SUFFIX):
                        found.append(check_name(one.removesuffix(SUFFIX)))
        return sorted(found)[:MAX_DASHBOARDS]

    def get(self, name: str) -> DashboardText:
        """Return a dashboard. Raises DashboardNotFoundError, OSError, ConfigFileError if it is not text."""
        check_name(name)
        if (
            self._folder is not None
            and (text := self._read(self._folder / f"{name}{SUFFIX}", self._folder)) is not None
        ):
            return DashboardText(name, text, False)
        if name not in self._shipped:
            raise DashboardNotFoundError(f"no dashboard {name}: /api/dashboards lists them")
        return self._shipped[name]

    def _read(self, file: Path, folder: Path) -> str | None:
        """Return the text of a regular file; None if it is missing. Links may lead within the folder only."""
        if not file.resolve().is_relative_to(folder.resolve()):
            raise DashboardNotFoundError(f"{file.name} is a link that leads out of the folder of dashboards")
        if not file.is_file():
            return None
        return read_config_text(file, file.name)

    def save(self, name: str, text: str, etag: str | None, user: str) -> DashboardText:
        """Save a text, made from the state `etag`; None for a dashboard that does not exist yet.

        Raises ConfigFileError, DashboardConflictError, ReadOnlyDashboardsError, DashboardLimitError, OSError."""
        check_name(name)
        read_dashboard(text, f"{name}{SUFFIX}")
        with self._changing(name, etag) as (folder, before):
            if before is None and len(self._own_names()) >= MAX_DASHBOARDS:
                raise DashboardLimitError(f"there are {MAX_DASHBOARDS} dashboards: delete one first")
            self._keep(folder, name, user, text)
            _write(folder / f"{name}{SUFFIX}", text)
        return DashboardText(name, text, False)

    def add_panel(self, name: str, panel: Mapping[str, Any], etag: str, user: str) -> DashboardText:
        """Save the text of the state `etag` with one more panel. Raises as `save`, ValueError for the layout."""
        found = self.get(name)
        if found.etag != etag:
            raise DashboardConflictError(f"{name} changed since: load it again, and add the panel there")
        return self.save(name, append_panel(found.text, panel, found.file), etag, user)

    def delete(self, name: str, etag: str | None, user: str) -> None:
        """Delete a dashboard of the folder; its versions are kept, and that of the package is shown again."""
        check_name(name)
        with self._changing(name, etag) as (folder, before):
            if before is None or before.is_shipped:
                raise DashboardNotFoundError(f"{name} is not in the folder of dashboards: nothing to delete")
            self._keep(folder, name, user, None)
            (folder / f"{name}{SUFFIX}").unlink()
            _sync(folder)

    def restore(self, name: str, number: int, etag: str | None, user: str) -> DashboardText:
        """Save the text of a version again."""
        text = self.version(name, number).text
        if text is None:
            raise DashboardNotFoundError(f"version {number} of {name} is its deletion: choose an earlier one")
        return self.save(name, text, etag, user)

    def versions(self, name: str) -> list[DashboardVersion]:
        """Return the kept versions, newest first."""
        check_name(name)
        if self._folder is None:
            return []
        return [one for number in reversed(_numbers(self._history(name))) if (one := self._load(name, number))]

    def version(self, name: str, number: int) -> DashboardVersion:
        """Return one version. Raises DashboardNotFoundError."""
        check_name(name)
        found = self._load(name, number) if self._folder is not None else None
        if found is None:
            raise DashboardNotFoundError(f"no version {number} of {name}: at most {MAX_VERSIONS} are kept")
        return found

    def diff(self, name: str, number: int, other: int | None = None) -> str:
        """Return the unified diff from a version to another, or to the present text."""
        old = self.version(name, number).text or ""
        if other is not None:
            new, title = self.version(name, other).text or "", f"version {other}"
        else:
            new, title = self.get(name).text, "now"
        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), f"version {number}", title, lineterm="")
        return "\n".join(lines)

    @contextmanager
    def _changing(self, name: str, etag: str | None) -> Iterator[tuple[Path, DashboardText | None]]:
        """Yield folder and present state, while no other process changes anything."""
        folder = self._folder
        if folder is None:
            raise ReadOnlyDashboardsError(
                "the dashboards are read-only: start the API with --dashboards FOLDER to change them"
            )
        history = folder / VERSIONS
        history.mkdir(parents=True, exist_ok=True)
        with self._lock, exclusive_lock(history / ".lock"):
            try:
                before: DashboardText | None = self.get(name)
            except DashboardNotFoundError:
                before = None
            if before is None and etag is not None:
                raise DashboardConflictError(f"{name} was deleted since: save it under another name")
            if before is not None and before.etag != etag:
                told = "changed since" if etag is not None else "exists"
                raise DashboardConflictError(f"{name} {told}: load it again, and make the change there")
            yield folder, before

    def _history(self, name: str) -> Path:
        return (self._folder or Path()) / VERSIONS / name

    def _load(self, name: str, number: int) -> DashboardVersion | None:
        """Return a version; None if its file is missing or damaged."""
        try:
            with (self._history(name) / f"{number:06}.json").open("rb") as stream:
                data = json.loads(stream.read(4 * MAX_BYTES))
            return DashboardVersion(number, int(data["time_ms"]), str(data["user"]), data["text"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def _keep(self, folder: Path, name: str, user: str, text: str | None) -> None:
        """Write a version, and before it the present text if it was changed outside. Versions come before the file: a
        crash in between leaves a version too many, never a text without one."""
        history = self._history(name)
        if not history.exists() and sum(1 for _ in (folder / VERSIONS).iterdir()) > MAX_HISTORIES:
            raise DashboardLimitError(f"versions of {MAX_HISTORIES} names are kept: delete some below {VERSIONS}")
        history.mkdir(exist_ok=True)
        last = self._load(name, (_numbers(history) or [0])[-1])
        with suppress(ConfigFileError):
            before = self._read(folder / f"{name}{SUFFIX}", folder)
            if before is not None and (last is None or last.text != before):
                self._add(history, "", before)
        self._add(history, user, text)
        for number in _numbers(history)[:-MAX_VERSIONS]:
            (history / f"{number:06}.json").unlink(missing_ok=True)

    def _add(self, history: Path, user: str, text: str | None) -> None:
        number = (_numbers(history) or [0])[-1] + 1
        made = asdict(DashboardVersion(number, self._clock.now_ms(), user, text))
        _write(history / f"{number:06}.json", json.dumps(made))


def _numbers(history: Path) -> list[int]:
    try:
        return sorted(int(found[1]) for one in os.listdir(history) if (found := _VERSION.fullmatch(one)))
    except FileNotFoundError:
        return []


def _write(file: Path, text: str) -> None:
    """Replace a file at once: after a crash it has the old text or the new one."""
    fresh = file.with_name(f".{file.name}.new")
    opened = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
    with open(opened, "w", encoding="utf-8", newline="") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(file)
    _sync(file.parent)


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
