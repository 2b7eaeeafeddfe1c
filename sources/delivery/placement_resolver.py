"""Placement of an address: labels dc, rack, module, host, environment, the same for every polling agent.

Rules by address range take precedence over the reverse name, which is looked up in threads, with a timeout, and cached
on disk. A name has the form `<dc>-<rack>-<module><number>`, e.g. `jb-r12-web01.example.org`: dc letters, then optional
digits; rack `r` and digits, or digits; module letters. Any other name gives `host` only. The domain is removed, so that
a machine has the same name for itself and for others.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import re
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

from pydantic import Field, RootModel

from artimon.model.clock import Clock
from artimon.model.labels import validate_labels
from artimon.runtime.config_file import read_config
from artimon.runtime.config_model import Section, checked, parsed
from sources.state.state_files import replace_file

log = logging.getLogger(__name__)
REFRESH_MS = 86_400_000
RETRY_MS = 600_000
MAX_NAMES = 100_000
SAVE_S = 1.0
"""Delay of a write in seconds. Names found meanwhile are written together, as the file is rewritten whole."""


def reverse_name(ip: str) -> str:
    """Return the reverse DNS name of an address. Raises OSError if it has none."""
    return socket.gethostbyaddr(ip)[0]


def source_name(labels: Mapping[str, str]) -> str:
    """Return the source name of a process. It does not depend on the uuid, the port or the polling agent."""
    return f"{labels['context']}/{labels['host']}/{labels['instance']}"


class PlacementResolver:
    """Address -> placement labels. A failed look-up keeps the last answer; without one, `host` is the address.

    A loopback address always means this machine and is not looked up."""

    def __init__(
        self,
        cache: Path,
        rules: tuple[PlacementRule, ...],
        clock: Clock,
        *,
        hostname: str | None = None,
        resolve: Callable[[str], str] = reverse_name,
        deadline_s: float = 2.0,
    ) -> None:
        self.hostname = (hostname or socket.gethostname()).split(".", 1)[0]
        self._cache, self._rules, self._clock = cache, rules, clock
        self._resolve, self._deadline_s = resolve, deadline_s
        self._names: dict[str, str] = _read_names(cache)
        self._retry_after_ms: dict[str, int] = {}
        self._lookups: dict[str, asyncio.Future[str]] = {}
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="reverse-name")
        self._saving: asyncio.TimerHandle | None = None

    async def labels(self, ip: str) -> dict[str, str]:
        """Return the labels of an address. Waits up to the timeout, and only for a name that is not cached."""
        by_rule = labels_by_rule(self._rules, ip)
        if ipaddress.ip_address(ip).is_loopback:
            return {**labels_of_name(self.hostname), **by_rule}
        if "host" not in by_rule and (ip in self._lookups or self._clock.now_ms() >= self._retry_after_ms.get(ip, 0)):
            asked = self._start(ip)
            if ip not in self._names:
                await asyncio.wait([asked], timeout=self._deadline_s)
        name = self._names.get(ip)
        return {**(labels_of_name(name) if name else {"host": ip}), **by_rule}

    def close(self) -> None:
        """Cancel queued look-ups and write the names found."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._saving is not None:
            self._saving.cancel()
            self._save()

    def _start(self, ip: str) -> asyncio.Future[str]:
        """Return the pending look-up of an address; start one if there is none. A late answer is cached, too."""
        if ip not in self._lookups:
            self._retry_after_ms[ip] = self._clock.now_ms() + RETRY_MS
            future = asyncio.get_running_loop().run_in_executor(self._threads, self._resolve, ip)
            self._lookups[ip] = future
            future.add_done_callback(lambda done: self._on_resolved(ip, done))
        return self._lookups[ip]

    def _on_resolved(self, ip: str, future: asyncio.Future[str]) -> None:
        self._lookups.pop(ip, None)
        if future.cancelled() or future.exception() is not None:
            return
        self._retry_after_ms[ip] = self._clock.now_ms() + REFRESH_MS
        name, known = future.result(), self._names.get(ip)
        if name != known and (known is not None or len(self._names) < MAX_NAMES):
            self._names[ip] = name
            if self._saving is None:
                self._saving = asyncio.get_running_loop().call_later(SAVE_S, self._save)

    def _save(self) -> None:
        self._saving = None
        try:
            replace_file(self._cache, json.dumps(self._names, indent=0).encode())
        except OSError as error:
            log.warning("names from reverse DNS cannot be saved in %s: %s", self._cache, error)


def _read_names(cache: Path) -> dict[str, str]:
    try:
        content = json.loads(cache.read_text())
    except (OSError, ValueError):
        return {}
    return {str(k): str(v) for k, v in content.items()} if isinstance(content, dict) else {}


_NAME = re.compile(r"(?P<dc>[a-z]+[0-9]*)-(?P<rack>r?[0-9]+)-(?P<module>[a-z]+)[0-9]*(?:-.*)?", re.IGNORECASE)
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class PlacementRule(Section):
    """Labels of the addresses in `net`. If several rules match, the narrower range wins for each label."""

    net: Annotated[_Network, parsed(ipaddress.ip_network)]
    labels: Annotated[dict[str, str], checked(validate_labels)]


class _Rules(Section):
    rules: tuple[PlacementRule, ...] = Field(description='a list of {"net": "10.1.0.0/16", "labels": {"dc": "jb"}}')


def read_rules(path: Path) -> tuple[PlacementRule, ...]:
    """Return the rules of a file: TOML or JSON with a list `rules`, in JSON also the list alone. Raises
    ConfigFileError."""
    file = read_config(path, form="toml" if path.suffix == ".toml" else "json")
    if isinstance(file.data, list):
        rules = file.validate(RootModel[tuple[PlacementRule, ...]]).root
    else:
        rules = file.validate(_Rules).rules
    return tuple(sorted(rules, key=lambda rule: rule.net.prefixlen))


def labels_by_rule(rules: tuple[PlacementRule, ...], ip: str) -> dict[str, str]:
    """Return the labels that the rules give to an address."""
    address = ipaddress.ip_address(ip)
    labels: dict[str, str] = {}
    for rule in rules:
        if address in rule.net:
            labels.update(rule.labels)
    return labels


def labels_of_name(name: str) -> dict[str, str]:
    """Return the labels that a host name gives.

    >>> labels_of_name("jb-r12-web01.example.org")
    {'host': 'jb-r12-web01', 'dc': 'jb', 'rack': 'r12', 'module': 'web'}
    """
    short = name.split(".", 1)[0]
    found = _NAME.fullmatch(short)
    return {"host": short, **(found.groupdict() if found else {})}
