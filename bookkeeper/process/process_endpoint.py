"""The endpoint of a process: instance number, Thrift server and registration, run by one background thread."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from bookkeeper.process import addresses, instances
from bookkeeper.process.host_key import HOSTS, fit_host_key, host_key
from bookkeeper.runtime.application_log import add_null_handler
from bookkeeper.runtime.process_settings import FINAL_FOLDER, ProcessSettings, environment, zookeeper_digest
from bookkeeper.runtime.wall_clock import now_ms
from bookkeeper.variables.variable_registry import VariableRegistry

if TYPE_CHECKING:
    from bookkeeper.process.ephemeral_node import EndpointRegistration
    from bookkeeper.rpc.framed_server import FramedServer
    from bookkeeper.rpc.poll_service import PollHandler

RETRY_S = 30.0
LAST_POLL_TIMEOUT_S = 5.0
REGISTRATION_TIMEOUT_S = 1.0
"""A process that was set up less than this ago may finish its registration before it ends: else its values would be
lost."""
ZOOKEEPER_CONNECT_S = 0.2
EXIT_TIMEOUT_S = 2.0
"""Timeout for writing the final snapshot, in seconds: a hanging file system must not block the end of a process."""
MIN_REGISTERED_S = 2.0
"""Minimum age of a process before its znode is deleted, in seconds: by then watching agents have seen it."""
MAX_CONNECTIONS = 16
MAX_FRAME_BYTES = 256 * 1024
"""Maximum size of a request in bytes; the memo of a poller (turns.MAX_MEMO) is its largest part."""
IDLE_TIMEOUT_S = 600.0
REQUEST_TIMEOUT_S = 5.0
"""Timeout for receiving a whole request, in seconds; the same as the timeout of pollers."""
ACCEPT_RATE = 200.0
log = logging.getLogger("bookkeeper")


class ProcessEndpoint:
    """Makes the variables of a process pollable. Nothing here raises into, or blocks, the application.

    Threads: the application calls `start`, `close`, `abandon`; everything else runs in `_run`.
    `importing` is held during imports, so that no fork happens meanwhile: the child would wait forever for an import
    lock whose thread it does not have."""

    def __init__(
        self,
        variables: VariableRegistry,
        settings: ProcessSettings,
        uuid: bytes,
        old: ProcessEndpoint | None = None,
        session: Any = None,
    ) -> None:
        """`session`: started kazoo client to register with; None for one of its own."""
        self._session = session
        self.poll_last: Callable[[bytes], bool] = lambda _uuid: False
        """In an agent that polls itself: poll this process (its uuid) once more and return True. The znode then goes
        with `session`, which ends next; its deletion would cost three messages."""
        self._variables, self._settings, self.uuid, self._old = variables, settings, uuid, old
        self._numbering = threading.Lock()  # guards _instance while a successor takes it over
        self.importing = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._instance: instances.Instance | None = None
        self.server: FramedServer | None = None
        self.registration: EndpointRegistration | None = None
        self.service: PollHandler | None = None
        self.advertised = ""
        self._started_at = monotonic()
        self._prepared = threading.Event()  # the first set-up has ended: `registration` is set, or it failed
        self._prepared_at = float("inf")

    def start(self) -> None:
        """Starts the background thread. Raises RuntimeError if the system has no more threads."""
        self._thread = threading.Thread(target=self._run, name="bookkeeper", daemon=True)
        self._thread.start()

    def close(self, last_poll_s: float = LAST_POLL_TIMEOUT_S) -> None:
        """Withdraws the znode, waits for one more poll if an agent may still poll, then closes everything. Writes a
        final snapshot if no agent has polled the last values.

        Returns at once if ZooKeeper is unreachable, else within `last_poll_s` and about 2 s. A set-up that is under
        way, as in a young process on a busy machine, may finish first, within `last_poll_s`, too."""
        if last_poll_s:
            self._finish_registering(last_poll_s)
        self._withdraw(last_poll_s)
        self._close_server()
        if last_poll_s:
            self.write_final_snapshot()
        self._close_registration()

    def close_without_poll(self) -> None:
        """Closes without a last poll and writes a final snapshot. For use before os._exit or exec."""
        if self._final_folder_exists():
            self._finish_setting_up(LAST_POLL_TIMEOUT_S)
        self._withdraw(0.0)
        self._close_server()
        self.write_final_snapshot()
        self._close_registration()

    def _withdraw(self, last_poll_s: float) -> None:
        self._closing.set()
        registration, service = self.registration, self.service
        if registration is not None and service is not None:
            service.close_soon()
            until = monotonic() + last_poll_s
            if registration.registered.is_set() and not service.polled.is_set():
                # watchers would miss a node that is deleted right after its creation
                service.last_poll.wait(max(0.0, min(last_poll_s, self._started_at + MIN_REGISTERED_S - monotonic())))
            if last_poll_s and self.poll_last(self.uuid):
                service.last_poll.wait(max(0.0, until - monotonic()))
                return
            registration.withdraw()
            if registration.registered.is_set():
                registration.withdrawn.wait(1.5)
                if registration.deleted or service.polled.is_set():
                    service.last_poll.wait(max(0.0, until - monotonic()))

    def _finish_registering(self, timeout_s: float) -> None:
        registration = self.registration
        if monotonic() >= self._prepared_at + REGISTRATION_TIMEOUT_S:
            return
        if registration is not None and registration.registered.is_set():
            return
        reachable = addresses.is_reachable(self._settings.zookeeper, ZOOKEEPER_CONNECT_S)
        if reachable or self._final_folder_exists():
            self._finish_setting_up(timeout_s)
        if reachable and self.registration is not None:
            self.registration.registered.wait(max(0.0, self._prepared_at + REGISTRATION_TIMEOUT_S - monotonic()))

    def _finish_setting_up(self, timeout_s: float) -> None:
        """Wait for a set-up under way: it makes the endpoint to poll and the source of a final snapshot."""
        self._prepared.wait(max(timeout_s, REGISTRATION_TIMEOUT_S))

    def write_final_snapshot(self) -> None:
        """Write a final snapshot unless an agent has the last values. The server must have stopped: no later poll."""
        service = self.service
        if service is None or service.handed_over.is_set() or not self._final_folder_exists():
            return
        worker = threading.Thread(target=self._write_snapshot, args=(service,), name="bookkeeper-final", daemon=True)
        try:
            worker.start()
        except RuntimeError:  # the interpreter is ending and starts no more threads
            self._write_snapshot(service)
        else:
            worker.join(EXIT_TIMEOUT_S)

    def _final_folder_exists(self) -> bool:
        """True if an agent has created the folder of final snapshots."""
        return os.path.isdir(os.path.join(self._settings.dropin, FINAL_FOLDER))

    def _write_snapshot(self, service: PollHandler) -> None:
        from bookkeeper.export import final_file as final

        try:
            made = service.final(self.advertised)
            if made is not None:
                final.write_final_snapshot(self._settings.dropin, self.uuid, final.encode_final(made))
        except Exception as error:
            log.warning("final snapshot not written, values since the last poll are lost: %s", error)

    def _close_parts(self) -> None:
        self._close_server()
        self._close_registration()

    def _close_server(self) -> None:
        if self.server is not None:
            self.server.stop(timeout=0.5)

    def _close_registration(self) -> None:
        if self.registration is not None:
            self.registration.stop()
            if self.registration.connected:
                self.registration.stopped.wait(1.0)
        # The instance number is not released here: its lock ends with the process.

    def abandon(self) -> None:
        """In a forked child: closes the child's copies of sockets, session and lock; the parent keeps its own."""
        if self.registration is not None:
            self.registration.abandon()
        if self.server is not None:
            self.server.abandon()
        if self._instance is not None:
            self._instance.close()

    def _run(self) -> None:
        try:
            with self.importing:
                _import_all()
            self._replace_old()
            if self._prepare() and self.registration is not None:
                self.registration.run()
        except Exception:
            log.exception("the endpoint of this process failed; its variables can no longer be polled")
        finally:
            self._prepared.set()

    def _prepare(self) -> bool:
        """Set up number, server and registration; retry every 30 s. False if the process ends first."""
        while not self._closing.is_set():
            try:
                self._serve()
                if not self._closing.is_set():
                    return True
                self._close_parts()  # close() may have run before they were set
            except Exception as error:
                log.warning("endpoint not started, retry in %.0f s: %s: %s", RETRY_S, type(error).__name__, error)
                self._prepared.set()
                self._closing.wait(RETRY_S)
        return False

    def _serve(self) -> None:
        from bookkeeper.process.ephemeral_node import EndpointRegistration
        from bookkeeper.rpc.poll_service import PollHandler, ProcessIdentity, idl
        from bookkeeper.rpc.security import security_from_settings

        settings = self._settings
        name = settings.instance or self._take_number()
        # Start time after taking the lock: the previous holder has ended, so incarnations of a series never overlap.
        identity = ProcessIdentity(self.uuid, now_ms(), settings.context, name)
        handler = PollHandler(self._variables, identity)
        where = addresses.choose_addresses(settings.zookeeper, settings.advertise, settings.bind)
        if where.ignored:
            log.warning("%.80r has no usable address: %s is advertised instead", where.ignored, where.advertise)
        shown = security_from_settings(environment()) if settings.secure_polls else None
        user = zookeeper_digest(settings.zookeeper_auth) if settings.zookeeper_auth else ""
        server = _listen(idl().Bookkeeper, handler, where, shown)
        port = where.advertise_port or server.port
        host = host_key(settings.host, settings.dropin, where.advertise)
        address = f"{addresses.bracket_ipv6(where.advertise)}:{port}"
        path = f"{HOSTS}/{host}/{settings.context}:{address}:{format_uuid(self.uuid)}"
        data = {"instance": name, "birth_ms": identity.birth_ms, "pid": os.getpid(), "version": 1}
        self.service, self.server, self.advertised = handler, server, where.advertise
        told = json.dumps(data).encode()
        self._prepared_at = monotonic()  # before `registration`: who sees that one, waits for a finite time
        # in a container, or on a host without an agent
        is_first = self._session is None and host == fit_host_key(where.advertise)
        self.registration = EndpointRegistration(
            settings.zookeeper, path, told, digest=user, session=self._session, is_first=is_first
        )
        self._prepared.set()

    def _take_number(self) -> str:
        with self._numbering:
            if self._instance is None and not self._closing.is_set():
                self._instance = self._new_number()
            return self._instance.name if self._instance is not None else ""

    def _new_number(self) -> instances.Instance:
        try:
            return instances.lock_instance(self._settings.run, self._settings.context)
        except instances.InstanceError as error:
            log.warning("no instance number: using the process id, so series end with the process: %s", error)
            return instances.Instance(f"pid{os.getpid()}", None)

    def _replace_old(self) -> None:
        """Replaces the endpoint with the old settings; keeps its number if context and folder are the same."""
        old, self._old = self._old, None
        if old is None:
            return
        old.close(last_poll_s=0.0)
        with old._numbering:
            number, old._instance = old._instance, None
        kept = old._settings
        if number is not None and (kept.context, kept.run) == (self._settings.context, self._settings.run):
            self._instance = number
        elif number is not None:
            number.close()


def _listen(service: Any, handler: Any, where: addresses.Addresses, security: Any = None) -> FramedServer:
    from bookkeeper.rpc.framed_server import FramedServer

    problem: OSError | None = None
    for host in where.bind:
        server = FramedServer(
            service,
            handler,
            host,
            where.bind_port,
            max_frame=MAX_FRAME_BYTES,
            max_connections=MAX_CONNECTIONS,
            idle_timeout=IDLE_TIMEOUT_S,
            request_timeout=REQUEST_TIMEOUT_S,
            accept_rate=ACCEPT_RATE,
            name="bookkeeper",
            on_reply=handler.on_reply,
            security=security,
        )
        try:
            server.start()
            return server
        except OSError as error:
            problem = error
    raise OSError(
        f"cannot listen on {where.bind}, port {where.bind_port or 'any'}: {problem}: set ARTIMON_BIND to an address of "
        "this host, with a free port or without a port"
    )


def _import_all() -> None:
    """Import everything that later steps need, while `importing` keeps forks away."""
    import encodings.idna  # noqa: F401 - used by getaddrinfo

    import bookkeeper.export.final_file
    import bookkeeper.process.ephemeral_node
    import bookkeeper.rpc.framed_server
    import bookkeeper.rpc.poll_service
    import bookkeeper.rpc.security

    bookkeeper.rpc.poll_service.idl()


def format_uuid(uuid: bytes) -> str:
    """Format 16 bytes as a UUID."""
    text = uuid.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class LogRateLimit(logging.Filter):
    """Passes each message once a minute: an absent ZooKeeper must not fill the application's log."""

    def __init__(self, every_s: float = 60.0) -> None:
        super().__init__()
        self._every_s, self._last = every_s, dict[str, float]()

    def filter(self, record: logging.LogRecord) -> bool:
        now, text = monotonic(), str(record.msg)
        if now - self._last.get(text, -self._every_s) < self._every_s:
            return False
        if len(self._last) > 1000:
            self._last.clear()
        self._last[text] = now
        return True


_LIMIT = LogRateLimit()


LOGGERS = ("bookkeeper", *(f"bookkeeper.{part}" for part in ("zookeeper", "framed", "secure", "openmetrics")))
"""Loggers of this package. A filter of a logger does not see the records of the loggers below it."""


def limit_logs() -> None:
    """Suppress our log unless the application configures logging, and limit its rate."""
    add_null_handler()
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_LIMIT)
