"""Processes that an agent follows: the registered ones of groups whose lease it holds."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from sources.base.endpoint_address import EndpointAddress
from sources.base.schedule import end_tasks
from sources.delivery.poll_context import PollContext
from sources.poll.discovery import EndpointListing
from sources.poll.group_assignment import HostGroup, group_of
from sources.poll.process_poller import ProcessFollower
from sources.state.series_memory import PORT, SourceSeries

log = logging.getLogger(__name__)
MAX_ENDPOINTS = 20_000
EXIT_TIMEOUT_S = 1.0
"""Seconds that a stopping agent waits for processes that have deregistered."""
COALESCE_S = 0.05
"""Delay in seconds by which changes are passed on together to the leases."""
MIN_MASS_LOSS = 10
"""Minimum of znodes gone at once, if also most of all: ZooKeeper may have lost its data, so the check is delayed."""


class Leaseholder(Protocol):
    """Assigns groups to agents (sources.poll.group_leases)."""

    def set_wanted(self, registered: frozenset[HostGroup], kept: frozenset[HostGroup]) -> None: ...

    def released(self, group: HostGroup) -> None: ...


class FollowedProcesses:
    """Starts and stops the followers of an agent. Event loop only. Discovery calls `heard`, `listed`; leases `settled`.

    Processes of an earlier run are followed before the leases are settled. Meanwhile the process itself reports if
    another agent polls it."""

    def __init__(self, shared: PollContext, leases: Leaseholder) -> None:
        self._shared, self._leases = shared, leases
        self._followers: dict[EndpointAddress, tuple[ProcessFollower, asyncio.Task[None]]] = {}
        self._standing_down: dict[EndpointAddress, asyncio.Task[None]] = {}
        self._registered: dict[str, frozenset[EndpointAddress]] = {}
        self._assigned: frozenset[HostGroup] | None = None
        """Groups to poll; None until the leases are settled."""
        self._leaving: frozenset[HostGroup] = frozenset()
        self._wanted_scheduled = self._release_scheduled = False
        self.stopping = False

    def resume(self, sources: Iterable[SourceSeries]) -> None:
        """Follow the processes of the last run, even if ZooKeeper is unreachable."""
        for series in sources:
            meta = series.meta
            if PORT in meta and series.live and not meta.get("elsewhere"):
                self._follow(EndpointAddress(meta["context"], meta["ip"], meta[PORT], series.uuid), series)
        self._send_wanted()  # before the leases settle: they only assign groups that they know

    # --- events of discovery

    def on_context_changed(self, context: str, endpoints: frozenset[EndpointAddress]) -> None:
        """Handle the full set of registered processes of one context."""
        self._registered[context] = endpoints
        self._compare([endpoint for endpoint in self._followers if endpoint.context == context], endpoints)

    def on_listed(self, listing: EndpointListing) -> None:
        """Handle the full set of registered processes."""
        self._registered = dict(listing)
        self._compare(list(self._followers), frozenset().union(*listing.values()))

    def _compare(self, known: list[EndpointAddress], registered: frozenset[EndpointAddress]) -> None:
        gone = []
        for endpoint in known:
            follower = self._followers[endpoint][0]
            if endpoint in registered:
                follower.set_registered(True)
            elif follower.registered:
                gone.append(endpoint)
        wiped_s = self._shared.config.wiped_s
        if len(gone) >= MIN_MASS_LOSS and 2 * len(gone) > len(self._followers):
            log.warning("%d of %d znodes are gone at once: checked again in %g s", len(gone), len(known), wiped_s)
            asyncio.get_running_loop().call_later(wiped_s, self._mark_unregistered, gone)
        else:
            self._mark_unregistered(gone)
        self._follow_assigned(registered)
        self._schedule_wanted()

    def _mark_unregistered(self, gone: Iterable[EndpointAddress]) -> None:
        """Mark endpoints as unregistered unless they have registered again meanwhile."""
        for endpoint in gone:
            if endpoint in self._followers and endpoint not in self._registered.get(endpoint.context, ()):
                self._followers[endpoint][0].set_registered(False)
        self._schedule_wanted()

    def _schedule_wanted(self) -> None:
        if not self._wanted_scheduled:
            self._wanted_scheduled = True
            asyncio.get_running_loop().call_later(COALESCE_S, self._send_wanted)

    def _send_wanted(self) -> None:
        self._wanted_scheduled = False
        registered = frozenset(group_of(one) for endpoints in self._registered.values() for one in endpoints)
        kept = frozenset(group_of(one) for one in self._followers if one not in self._registered.get(one.context, ()))
        self._leases.set_wanted(registered, kept)

    # --- events of the leases

    def on_assigned(self, mine: frozenset[HostGroup], leaving: frozenset[HostGroup]) -> None:
        """Follow the processes of the groups `mine` and no others; release groups of `leaving` once none is polled."""
        self._assigned, self._leaving = mine, leaving
        for endpoint in [one for one in self._followers if group_of(one) not in mine]:
            self._stand_down(endpoint)
        for endpoints in self._registered.values():
            self._follow_assigned(endpoints)
        self._release()

    def _follow_assigned(self, endpoints: Iterable[EndpointAddress]) -> None:
        mine = self._assigned or frozenset()
        new = [one for one in endpoints if one not in self._followers and group_of(one) in mine]
        for endpoint in sorted(new):
            if endpoint not in self._standing_down:
                self._follow(endpoint, None)

    def _stand_down(self, endpoint: EndpointAddress) -> None:
        follower, task = self._followers.pop(endpoint)
        log.info("%s: another agent polls it", endpoint)
        standing = asyncio.create_task(follower.stand_down(task), name=f"{endpoint} stands down")
        self._standing_down[endpoint] = standing
        standing.add_done_callback(lambda done: self._stood_down(endpoint, done))

    def _stood_down(self, endpoint: EndpointAddress, task: asyncio.Task[None]) -> None:
        del self._standing_down[endpoint]
        if not task.cancelled() and task.exception() is not None:
            log.error("%s", task.get_name(), exc_info=task.exception())
        if not self.stopping:
            if endpoint in self._registered.get(endpoint.context, ()):
                self._follow_assigned([endpoint])
            self._release()

    def _release(self) -> None:
        """Schedule one release of all finished groups: thousands may change hands together."""
        if self._leaving and not self._release_scheduled:
            self._release_scheduled = True
            asyncio.get_running_loop().call_later(COALESCE_S, self._release_now)

    def _release_now(self) -> None:
        self._release_scheduled = False
        busy = {group_of(one) for one in (*self._followers, *self._standing_down)}
        for group in self._leaving - busy:
            self._leases.released(group)

    # --- begin and end

    def _follow(self, endpoint: EndpointAddress, series: SourceSeries | None) -> None:
        if len(self._followers) >= MAX_ENDPOINTS:
            text = f"more than {MAX_ENDPOINTS} endpoints: the others are not polled"
            self._shared.figures.set_problem("endpoints", text)
            return
        follower = ProcessFollower(endpoint, self._shared, series)
        if series is not None:
            self._shared.owners.set_owner(series.name, follower)
        task = asyncio.create_task(follower.run(), name=str(endpoint))
        self._followers[endpoint] = (follower, task)
        task.add_done_callback(lambda done: self._unfollow(endpoint, done))

    def _unfollow(self, endpoint: EndpointAddress, task: asyncio.Task[None]) -> None:
        if self._followers.get(endpoint, (None, None))[1] is task:
            del self._followers[endpoint]
        self._shared.figures.set_refused(str(endpoint), Counter())  # a rival may have polled it after its end
        if not task.cancelled() and task.exception() is not None:
            log.error("the follower of %s failed", endpoint, exc_info=task.exception())
        if not self.stopping:
            self._schedule_wanted()
            self._release()

    async def stop(self) -> None:
        """Stop all followers. Poll deregistered processes to their end for at most LEAVING_S. The others are followed
        again at the next start."""
        self.stopping = True
        followers = [follower for follower, _ in self._followers.values()]
        await end_tasks([*(task for _, task in self._followers.values()), *self._standing_down.values()])
        leaving = [asyncio.create_task(follower.conclude()) for follower in followers if not follower.registered]
        if not leaving:
            return
        _, late = await asyncio.wait(leaving, timeout=EXIT_TIMEOUT_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
