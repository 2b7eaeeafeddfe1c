"""Elected agents: a few of all agents poll the processes of hosts without an agent, and those registered by context.

`/artimon/polling/elected/<slot>` (ephemeral; data: the agent). Only elected agents watch the whole fleet. The others
look for a free slot so rarely that the fleet as a whole looks about once in `look_s`, whatever its size. Elected agents
also tell the agents of networks which of their addresses have processes: `/artimon/polling/networks/<network>/<key>`.
"""

from __future__ import annotations

import contextlib
import random
from collections import deque
from collections.abc import Callable, Collection, Iterator
from time import monotonic
from typing import Any

from kazoo.exceptions import NodeExistsError, NoNodeError

from artimon.runtime.zookeeper_client import child_names
from bookkeeper.process.host_key import HOSTS
from sources.base.rendezvous import assigned_agent
from sources.poll.lease_units import NETWORKS, Network, address_of_unit, network_of, network_path, parse_networks
from sources.poll.unit_leases import CLAIMS
from sources.poll.zookeeper_session import drain, pipelined

SLOTS_PATH = "/artimon/polling/elected"
SLOTS = ("0", "1", "2")
MAX_LOOK_S = 600.0
MAX_FLEET_DELAY_S = 5.0
"""Maximum seconds by which changes of the fleet are handled together."""
MAX_CLAIMS_DELAY_S = 10.0
"""The same for claims of hosts: an agent that is back within this time is one change, and costs each elected agent one
event and one read."""


class AgentElection:
    """Membership of one agent in the set of elected agents. Used by one thread; watches, in kazoo's, only note the path
    and `wake`.

    The units of a lost agent, elected or on its host, stay reserved for `grace_s`, the time of a restart. A new elected
    agent takes units only after that time, except those near it."""

    def __init__(self, name: str, grace_s: float, look_s: float, wake: Callable[[], None]) -> None:
        self._name, self._grace_s, self._look_s, self._wake = name, grace_s, look_s, wake
        self._delay_s = min(MAX_FLEET_DELAY_S, grace_s / 2)
        self._claims_delay_s = min(MAX_CLAIMS_DELAY_S, grace_s * 2 / 3)
        self.elected = False
        self.agents = 0
        """Number of agents on hosts, as last read."""
        self._members: set[str] = set()
        self._departed: dict[str, float] = {}
        """Lost elected agent -> end of its grace period."""
        self._hosts: set[str] = set()
        self._claimed: set[str] = set()
        self._reserved: dict[str, float] = {}
        """Host whose agent is gone -> end of its grace period."""
        self._networks = frozenset[Network]()
        self._offered: dict[str, float] = {}
        """Host without a claim -> end of the time in which the agent of its network may claim it; 0 without one."""
        self._joined = float("-inf")
        self._next_look = 0.0
        self._reads: dict[str, float] = {}
        """List that an elected agent watches -> time of the next read: soon after an event, else `look_s` after the
        last read."""
        self._changed: deque[str] = deque()
        """Paths whose watch fired."""

    def reset(self) -> None:
        """Look again at once: a new session holds no slot, and watches ended with the connection."""
        self._next_look = 0.0
        self._reads = dict.fromkeys(self._reads, 0.0)

    def next_deadline(self) -> float:
        """Return the monotonic time at which `refresh` or `assigned` may find something new."""
        due = [self._next_look, *self._reads.values()]
        if self.elected:
            now = monotonic()
            ends = (
                *(self._joined + self._grace_s, *self._departed.values()),
                *(*self._reserved.values(), *self._offered.values()),
            )
            due += [end for end in ends if end > now]
        return min(due)

    def refresh(self, client: Any) -> None:
        """Look for a free slot, or read of the fleet what changed, if it is time. Raises ZOOKEEPER_ERRORS."""
        now = monotonic()
        for path in drain(self._changed):
            self._read_soon(path, now)
        if now < min((self._next_look, *self._reads.values())):
            return
        if now >= self._next_look:
            self._look(client, now)
        if self.elected:
            self._read_fleet(client, now, {path for path, due in self._reads.items() if due <= now})
            self._offer_addresses(client, now)

    def _read_soon(self, path: str, now: float) -> None:
        """Plan the read of a list that has changed, so that changes until then are read together."""
        if path == SLOTS_PATH:
            self._next_look = min(self._next_look, now + self._delay_s)
        elif path in self._reads:
            delay_s = self._claims_delay_s if path == CLAIMS else self._delay_s
            self._reads[path] = min(self._reads[path], now + delay_s)

    def _look(self, client: Any, now: float) -> None:
        """Read the slots, and take a free one unless one is ours."""
        members, ours = self._read_slots(client) if self.elected else (set[str](), False)
        if not ours:
            self._members, self._hosts, self._reads = set(), set(), {}
            if self._take_slot(client):
                self._joined, self._claimed = now, set()
                self._departed, self._reserved = {}, {}
                members, ours = self._read_slots(client)
        self.elected = ours
        if members != self._members:
            self._offered = {}  # those that the agent which is gone had to write are offered by another one
        if ours:
            self._reads = self._reads or dict.fromkeys((CLAIMS, HOSTS, NETWORKS), 0.0)
            self._departed.update(dict.fromkeys(self._members - members, now + self._grace_s))
            self._departed = {name: end for name, end in self._departed.items() if end > now and name not in members}
            self._members, self._next_look = members, now + self._look_s
        else:
            stat = client.exists(CLAIMS)
            self.agents = stat.numChildren if stat is not None else 0
            self._next_look = now + random.uniform(0.5, 1.5) * min(self._look_s * max(1, self.agents), MAX_LOOK_S)

    def _read_slots(self, client: Any) -> tuple[set[str], bool]:
        """Return the names of the elected agents, and True if this session holds a slot. Watches the slots."""
        slots = child_names(client, SLOTS_PATH, self._on_change)
        members, ours = set(), False
        for _, look in pipelined(slots, lambda slot: client.get_async(f"{SLOTS_PATH}/{slot}")):
            with contextlib.suppress(NoNodeError):
                data, stat = look()
                members.add(data.decode(errors="replace"))
                ours = ours or stat.ephemeralOwner == client.client_id[0]
        return members, ours

    def _take_slot(self, client: Any) -> bool:
        taken = child_names(client, SLOTS_PATH)
        for slot in random.sample(SLOTS, len(SLOTS)):
            if slot not in taken:
                with contextlib.suppress(NodeExistsError):
                    client.create(f"{SLOTS_PATH}/{slot}", self._name.encode(), ephemeral=True, makepath=True)
                    return True
        return False

    def _read_fleet(self, client: Any, now: float, changed: Collection[str]) -> None:
        """Read claims, hosts and networks, as far as they are due."""
        self._reads.update(dict.fromkeys(changed, now + self._look_s))
        if CLAIMS in changed:
            claimed = set(child_names(client, CLAIMS, self._on_change))
            self._reserved.update(dict.fromkeys(self._claimed - claimed, now + self._grace_s))
            self._claimed, self.agents = claimed, len(claimed)
        if HOSTS in changed:
            self._hosts = set(child_names(client, HOSTS, self._on_change))
        if NETWORKS in changed:
            networks = parse_networks(child_names(client, NETWORKS, self._on_change))
            if networks != self._networks:
                self._networks, self._offered = networks, {}
        self._reserved = {host: end for host, end in self._reserved.items() if end > now and host not in self._claimed}

    def _offer_addresses(self, client: Any, now: float) -> None:
        """Write each host without a claim that is an address of a network below that network, for its agent. An elected
        agent polls it only if it is not claimed within the grace period."""
        free = self._hosts - self._claimed
        self._offered = {host: end for host, end in self._offered.items() if host in free}
        fresh = {host: network_of(host, self._networks) for host in free - self._offered.keys()}
        paths = [
            f"{network_path(network)}/{host}"
            for host, network in fresh.items()
            if network is not None and assigned_agent(host, self._members) == self._name
        ]
        for _, answer in pipelined(paths, lambda path: client.create_async(path)):
            with contextlib.suppress(NodeExistsError, NoNodeError):
                answer()
        ends = {host: 0.0 if network is None else now + self._grace_s for host, network in fresh.items()}
        self._offered.update(ends)

    def assigned(self, context_units: Collection[str], own: Collection[str], held: Collection[str]) -> set[str]:
        """Return the units that this agent shall poll beside its own host."""
        if not self.elected:
            return set()
        now = monotonic()
        present = self._members | {name for name, end in self._departed.items() if end > now}
        settled = now >= self._joined + self._grace_s
        return {
            unit
            for unit in (*self._free_hosts(own, held, now), *context_units)
            if (settled or unit in held or _is_near(unit, own)) and assigned_agent(unit, present) == self._name
        }

    def _free_hosts(self, own: Collection[str], held: Collection[str], now: float) -> Iterator[str]:
        for host in self._hosts - self._claimed:
            offered = host not in held and self._offered.get(host, 0.0) > now
            if host not in own and not offered and self._reserved.get(host, 0.0) <= now:
                yield host

    def _on_change(self, event: Any) -> None:
        self._changed.append(event.path or "")
        self._wake()


def _is_near(unit: str, own: Collection[str]) -> bool:
    """Return True for a unit of a context on this host. A loopback address is that of the only host."""
    address = address_of_unit(unit)
    return address is not None and (address in own or address == "::1" or address.startswith("127."))
