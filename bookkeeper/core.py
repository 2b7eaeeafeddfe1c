"""The Bookkeeper: the variables of a process and the endpoint that shows them, through use, fork and exit."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bookkeeper.cells import BOOLEAN, DOUBLE, INTEGER, STRING
from bookkeeper.variables import MAX_VARIABLES, VariableRefused, Variables

if TYPE_CHECKING:
    from bookkeeper.endpoint import Endpoint

Labels = Mapping[str, str]
FORK_WAIT_S = 5.0


class Bookkeeper(Variables):
    """Counts things in this process and serves them to Artimon. Most programs use the module's functions instead,
    which go to one default object; a second object would be a second endpoint.

    Making one does nothing. The first write starts a background thread that listens on a free port and registers with
    ZooKeeper; the application never waits for it. With `online=False` (or ARTIMON_DISABLED=1) it only counts.

    Settings: `context` (default ARTIMON_CONTEXT, else the program's name), `instance` (ARTIMON_INSTANCE, else the
    lowest free number), `zookeeper` (ARTIMON_ZOOKEEPER, else 127.0.0.1:2181), `advertise` and `bind` addresses,
    `strict`: raise VariableRefused instead of counting `bookkeeper.refused`."""

    def __init__(
        self,
        *,
        context: str | None = None,
        instance: str | None = None,
        zookeeper: str | None = None,
        advertise: str | None = None,
        bind: str | None = None,
        strict: bool = False,
        online: bool = True,
        max_variables: int = MAX_VARIABLES,
    ) -> None:
        super().__init__(strict=strict, max_variables=max_variables)
        self._given = {
            "context": context,
            "instance": instance,
            "zookeeper": zookeeper,
            "advertise": advertise,
            "bind": bind,
        }
        self.online = online
        self._endpoint: Endpoint | None = None
        self._switch = threading.RLock()  # guards _endpoint and _given; never taken while `lock` is held
        self._uuid = b""
        self._fork_locks: list[Any] = []
        self.on_first_use = self.start
        _LIVE.add(self)

    def configure(
        self,
        *,
        context: str | None = None,
        instance: str | None = None,
        zookeeper: str | None = None,
        advertise: str | None = None,
        bind: str | None = None,
        strict: bool | None = None,
    ) -> None:
        """Changes settings that are not None. A process that is registered registers anew, in the background."""
        if strict is not None:
            self.strict = strict
        given = {
            "context": context,
            "instance": instance,
            "zookeeper": zookeeper,
            "advertise": advertise,
            "bind": bind,
        }
        changed = {name: value for name, value in given.items() if value is not None}
        if not changed:
            return
        from bookkeeper import settings  # not at the top: see _started

        try:
            settings.read({**self._given, **changed})
        except settings.SettingsError as error:
            self.refuse(VariableRefused("settings", str(error)))
            return
        with self._switch:
            self._given.update(changed)
            old, self._endpoint = self._endpoint, None
            if old is not None:
                self._endpoint = self._started(old)

    def start(self) -> None:
        """Makes the process pollable now instead of at the first write. Never raises for what the outside lacks."""
        if not self.online:
            return
        with self._switch:
            if self._endpoint is None:
                self._endpoint = self._started()

    def _started(self, old: Endpoint | None = None) -> Endpoint | None:
        # Not at the top: `import bookkeeper` costs an application what it needs to count, and no more.
        from bookkeeper import endpoint, settings

        try:
            chosen = settings.read(self._given)
        except settings.SettingsError as error:
            self._note(VariableRefused("settings", str(error)))
            chosen = settings.read(self._given, lenient=True)
        if chosen.disabled:
            self.online = False
            return None
        endpoint.quiet_logs()
        _hook_exit(self)
        self._uuid = self._uuid or os.urandom(16)
        made = endpoint.Endpoint(self, chosen, self._uuid, old)
        try:
            made.start()
        except RuntimeError as error:  # no more threads, or the interpreter is ending
            self._note(VariableRefused("settings", f"no background thread: {error}"))
            return None
        return made

    def _note(self, error: VariableRefused) -> None:
        strict, self.strict = self.strict, False
        self.refuse(error)
        self.strict = strict

    def close(self, last_poll_s: float | None = None) -> None:
        """What happens at exit: deletes the znode, serves one more poll (at most `last_poll_s`, 5 s), closes. Counting
        still works."""
        with self._switch:
            old, self._endpoint = self._endpoint, None
            self.online = False
        if old is None:
            return
        if last_poll_s is None:
            old.close()
        else:
            old.close(last_poll_s)

    @property
    def endpoint(self) -> Endpoint | None:
        """The running endpoint, None before the first write and when there is none."""
        return self._endpoint

    # Forking.

    def before_fork(self) -> None:
        """Waits, within limits, until no other thread is in the middle of something that a child would inherit."""
        self._fork_locks = []
        self._hold(self._switch)
        if self._endpoint is not None:  # looked at only now: it may just have been made
            self._hold(self._endpoint.importing)
        self._hold(self.lock)

    def _hold(self, lock: Any) -> None:
        if lock.acquire(timeout=FORK_WAIT_S):
            self._fork_locks.append(lock)

    def after_fork_in_parent(self) -> None:
        """Lets the others go on."""
        for lock in self._fork_locks:
            lock.release()
        self._fork_locks = []

    def after_fork_in_child(self) -> None:
        """The child is a process of its own: nothing counted, nothing open, another uuid."""
        old, self._endpoint = self._endpoint, None
        self._switch, self._uuid, self._fork_locks = threading.RLock(), b"", []
        self.forget_values()
        if old is not None:
            old.abandon()

    # The functions of the module.

    def add_to_integer_var(self, name: str, labels: Labels, offset: int = 1) -> int:
        """Adds, and returns the new value (0 if refused)."""
        return self.integer(name, labels).add(offset)

    def set_integer_var(self, name: str, labels: Labels, value: int) -> None:
        """Sets the value."""
        self.integer(name, labels).set(value)

    def get_integer_var(self, name: str, labels: Labels) -> int | None:
        """The value, None if there is no INTEGER of that name and labels."""
        cell = self.existing(INTEGER, name, labels)
        return None if cell is None else cell.value

    def remove_integer_var(self, name: str, labels: Labels) -> None:
        """Ends the variable if it exists."""
        self._remove(INTEGER, name, labels)

    def add_to_double_var(self, name: str, labels: Labels, offset: float = 1.0) -> float:
        """Adds, and returns the new value (0.0 if refused)."""
        return self.double(name, labels).add(offset)

    def set_double_var(self, name: str, labels: Labels, value: float) -> None:
        """Sets the value."""
        self.double(name, labels).set(value)

    def get_double_var(self, name: str, labels: Labels) -> float | None:
        """The value, None if there is no DOUBLE of that name and labels."""
        cell = self.existing(DOUBLE, name, labels)
        return None if cell is None else cell.value

    def remove_double_var(self, name: str, labels: Labels) -> None:
        """Ends the variable if it exists."""
        self._remove(DOUBLE, name, labels)

    def set_boolean_var(self, name: str, labels: Labels, value: bool) -> None:
        """Sets the value."""
        self.boolean(name, labels).set(value)

    def get_boolean_var(self, name: str, labels: Labels) -> bool | None:
        """The value, None if there is no BOOLEAN of that name and labels."""
        cell = self.existing(BOOLEAN, name, labels)
        return None if cell is None else cell.value

    def remove_boolean_var(self, name: str, labels: Labels) -> None:
        """Ends the variable if it exists."""
        self._remove(BOOLEAN, name, labels)

    def set_string_var(self, name: str, labels: Labels, value: str) -> None:
        """Sets the value."""
        self.string(name, labels).set(value)

    def get_string_var(self, name: str, labels: Labels) -> str | None:
        """The value, None if there is no STRING of that name and labels."""
        cell = self.existing(STRING, name, labels)
        return None if cell is None else cell.value

    def remove_string_var(self, name: str, labels: Labels) -> None:
        """Ends the variable if it exists."""
        self._remove(STRING, name, labels)

    def _remove(self, type_: int, name: str, labels: Labels) -> None:
        cell = self.existing(type_, name, labels)
        if cell is not None:
            self.remove(cell)


_LIVE: weakref.WeakSet[Bookkeeper] = weakref.WeakSet()
_HOOKED = threading.Event()


def _hook_exit(book: Bookkeeper) -> None:
    """The end of this process closes `book`. Done with the first endpoint; a program without one ends freely."""
    if not _HOOKED.is_set():
        _HOOKED.set()
        atexit.register(_at_exit)
    if _in_multiprocessing_child():
        sys.modules["multiprocessing.util"].Finalize(None, book.close, exitpriority=-100)


def _in_multiprocessing_child() -> bool:
    """Whether this process ends without atexit, by multiprocessing's own way."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _at_exit() -> None:
    for book in list(_LIVE):
        try:
            book.close()
        except BaseException:  # Ctrl-C during the last poll: leave
            return


def _before() -> None:
    for book in list(_LIVE):
        book.before_fork()


def _in_parent() -> None:
    for book in list(_LIVE):
        book.after_fork_in_parent()


def _in_child() -> None:
    for book in list(_LIVE):
        book.after_fork_in_child()


# At import, because a fork may come in the middle of the first write. It costs nothing until then.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
