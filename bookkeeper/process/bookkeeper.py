"""The Bookkeeper: the variables of a process and the endpoint that serves them, during use, fork and exit."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

from bookkeeper.variables.process_variables import ProcessVariables
from bookkeeper.variables.validation import VariableRefused

if TYPE_CHECKING:
    from bookkeeper.export.metrics_server import MetricsServer
    from bookkeeper.process.process_endpoint import ProcessEndpoint

FORK_WAIT_S = 5.0
GIVEN = ("context", "instance", "zookeeper", "advertise", "bind", "openmetrics")
"""Arguments that replace settings of the environment."""


class Bookkeeper(ProcessVariables):
    """Counts things in this process and serves them to Artimon. Most programs use the module's functions instead,
    which share one default object; a second object is a second endpoint.

    The constructor opens nothing. The first write starts a background thread that listens on a free port and registers
    with ZooKeeper; the application never waits for it. With `online=False` (or ARTIMON_DISABLED=1) it only counts.

    Settings: `context` (default ARTIMON_CONTEXT, else the program's name), `instance` (ARTIMON_INSTANCE, else the
    lowest free number), `zookeeper` (ARTIMON_ZOOKEEPER, else 127.0.0.1:2181), `advertise` and `bind` addresses,
    `strict` (ARTIMON_STRICT): raise VariableRefused instead of counting `bookkeeper.refused`; `max_variables`
    (ARTIMON_SERIES) and `max_per_name` (ARTIMON_SERIES_PER_NAME): beyond these, writes go to overflow series."""

    def __init__(
        self,
        *,
        context: str | None = None,
        instance: str | None = None,
        zookeeper: str | None = None,
        advertise: str | None = None,
        bind: str | None = None,
        openmetrics: str | None = None,
        strict: bool | None = None,
        online: bool = True,
        max_variables: int | None = None,
        max_per_name: int | None = None,
    ) -> None:
        arguments = locals()
        super().__init__(strict=strict, max_variables=max_variables, max_per_name=max_per_name)
        self.session: Any = None
        """Started kazoo client of this process to register with, instead of one of our own; set before `start`."""
        self._settings_in_code: dict[str, str | None] = {name: arguments[name] for name in GIVEN}
        self.online = online
        self._endpoint: ProcessEndpoint | None = None
        self._metrics_server: MetricsServer | None = (
            None  # for Prometheus; a forked child has closed its copy of the parent's
        )
        self._lifecycle_lock = threading.RLock()  # guards _endpoint and _given; never taken while `lock` is held
        self._uuid = b""
        self._forks: dict[int, list[Any]] = {}  # locks held by each forking thread, by thread id
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
        openmetrics: str | None = None,
        strict: bool | None = None,
    ) -> None:
        """Changes settings that are not None. A registered process registers again, in the background."""
        arguments = locals()
        if strict is not None:
            self.strict(strict)
        changed = {name: arguments[name] for name in GIVEN if arguments[name] is not None}
        if not changed:
            return
        from bookkeeper.runtime import process_settings as settings

        try:
            settings.read_settings({**self._settings_in_code, **changed})
        except settings.SettingsError as error:
            self.refuse(VariableRefused("settings", str(error)))
            return
        with self._lifecycle_lock:
            self._settings_in_code.update(changed)
            old, self._endpoint = self._endpoint, None
            if old is not None:
                self._endpoint = self._start_endpoint(old)

    def start(self) -> None:
        """Makes the process pollable now instead of at the first write. Does not raise for missing services."""
        if not self.online:
            return
        with self._lifecycle_lock:
            if self._endpoint is None:
                self._endpoint = self._start_endpoint()

    def _start_endpoint(self, old: ProcessEndpoint | None = None) -> ProcessEndpoint | None:
        # Imported late: `import bookkeeper` must load only what counting needs.
        from bookkeeper.process import process_endpoint as endpoint
        from bookkeeper.runtime import process_settings as settings

        try:
            chosen = settings.read_settings(self._settings_in_code)
        except settings.SettingsError as error:
            self.record_refusal(VariableRefused("settings", str(error)))
            chosen = settings.read_settings(self._settings_in_code, lenient=True)
        if chosen.disabled:
            self.online = False
            return None
        endpoint.limit_logs()
        _hook_exit(self)
        self._uuid = self._uuid or os.urandom(16)
        made = endpoint.ProcessEndpoint(self, chosen, self._uuid, old, self.session)
        try:
            made.start()
        except RuntimeError as error:  # no more threads, or the interpreter is ending
            self.record_refusal(VariableRefused("settings", f"no background thread: {error}"))
            return None
        self._serve_metrics(chosen.openmetrics)
        return made

    def _serve_metrics(self, address: str) -> None:
        """Replace the server for Prometheus by one at `address`; "" stops it."""
        old, self._metrics_server = self._metrics_server, None
        if old is not None:
            old.stop()
        if not address:
            return
        from bookkeeper.export import metrics_server

        try:
            self._metrics_server = metrics_server.serve(address, self)
        except (OSError, ValueError, RuntimeError) as error:
            self.record_refusal(VariableRefused("settings", f"no endpoint for Prometheus at {address!r:.80}: {error}"))

    def close(self, last_poll_s: float | None = None) -> None:
        """Deletes the znode, serves one more poll (waits at most `last_poll_s`, default 5 s) and closes. Runs at exit.
        Counting still works afterwards."""
        old = self._detached()
        if old is not None and last_poll_s is None:
            old.close()
        elif old is not None and last_poll_s is not None:
            old.close(last_poll_s)

    def leave(self) -> None:
        """Like `close`, but without a last poll: writes the values at once to a final snapshot for the agent of the
        host. For a process about to end without atexit, by os._exit, exec or a signal."""
        old = self._detached()
        if old is not None:
            old.close_without_poll()

    def _detached(self) -> ProcessEndpoint | None:
        """Go offline and return the endpoint to close."""
        with self._lifecycle_lock:
            old, self._endpoint = self._endpoint, None
            self.online = False
            self._serve_metrics("")
        return old

    def go_offline(self) -> bool:
        """Act as if ARTIMON_DISABLED=1 were set; False if the process can be polled already."""
        if self._endpoint is not None:
            return False
        self.online = False
        return True

    @property
    def endpoint(self) -> ProcessEndpoint | None:
        """The running endpoint; None before the first write and while offline."""
        return self._endpoint

    # Forking.

    def before_fork(self) -> None:
        """Takes the locks, each within FORK_WAIT_S, so that a child inherits no half-done work of another thread."""
        held: list[Any] = []
        _acquire(self._lifecycle_lock, held)
        if self._endpoint is not None:  # read under `_switch`: it may just have been created
            _acquire(self._endpoint.importing, held)
        _acquire(self.lock, held)
        self._forks[threading.get_ident()] = held

    def after_fork_in_parent(self) -> None:
        """Releases the locks of `before_fork`."""
        for lock in reversed(self._forks.pop(threading.get_ident(), [])):
            lock.release()

    def after_fork_in_child(self) -> None:
        """Resets the child to a new process: no values, no open sockets, a new uuid."""
        old, self._endpoint = self._endpoint, None
        self._metrics_server = None
        self._lifecycle_lock, self._uuid, self._forks = threading.RLock(), b"", {}
        self.forget_values()
        if old is not None:
            old.abandon()


def _acquire(lock: Any, held: list[Any]) -> None:
    if lock.acquire(timeout=FORK_WAIT_S):
        held.append(lock)


_LIVE: weakref.WeakSet[Bookkeeper] = weakref.WeakSet()
_HOOKED = threading.Event()


def _hook_exit(book: Bookkeeper) -> None:
    """Close `book` at the end of this process. Called for the first endpoint: a program without one needs no hook."""
    if not _HOOKED.is_set():
        _HOOKED.set()
        atexit.register(_at_exit)
    if _in_multiprocessing_child():
        sys.modules["multiprocessing.util"].Finalize(None, book.close, exitpriority=-100)


def _in_multiprocessing_child() -> bool:
    """True in a child of multiprocessing, which runs its finalizers instead of atexit."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _at_exit() -> None:
    for book in list(_LIVE):
        try:
            book.close()
        except BaseException:  # Ctrl-C during the last poll: stop waiting
            return


def _before_fork() -> None:
    for book in list(_LIVE):
        book.before_fork()


def _after_fork_in_parent() -> None:
    for book in list(_LIVE):
        book.after_fork_in_parent()


def _after_fork_in_child() -> None:
    for book in list(_LIVE):
        book.after_fork_in_child()


# Registered at import, because a fork may come in the middle of the first write. It costs nothing until then.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
