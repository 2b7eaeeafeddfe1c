"""Processes that an agent follows: the registered ones of units whose lease it holds."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from sources.base.endpoint_address import EndpointAddress
from sources.base.schedule import end_tasks
from sources.delivery.poll_context import PollContext
from sources.poll.process_poller import ProcessFollower
from sources.poll.registered_processes import UnitListing
from sources.state.series_memory import HOST_KEY, PORT, SourceSeries

log = logging.getLogger(__name__)
MAX_ENDPOINTS = 20_000
EXIT_TIMEOUT_S = 1.0
"""Seconds that a stopping agent waits for processes that have deregistered."""
COALESCE_S = 0.05
"""Delay in seconds by which changes are passed on together to the leases."""
MIN_MASS_LOSS = 10
"""Minimum of znodes gone at once, if also most of all: ZooKeeper may have lost its data, so the check is delayed."""


class Leaseholder(Protocol):
    """Assigns units to agents (sources.poll.host_coordinator)."""

    def set_kept(self, units: frozenset[str]) -> None: ...

    def released(self, unit: str) -> None: ...


class FollowedProcesses:
    """Starts and stops the followers of an agent. Event loop only. The coordinator calls `on_listed`, `on_assigned`.

    Processes of an earlier run are followed before the leases are settled. Meanwhile the process itself reports if
    another agent polls it."""

    def __init__(self, shared: PollContext, leases: Leaseholder) -> None:
        self._shared, self._leases = shared, leases
        self._followers: dict[EndpointAddress, tuple[ProcessFollower, asyncio.Task[None]]] = {}
        self._standing_down: dict[EndpointAddress, asyncio.Task[None]] = {}
        self._registered: dict[str, frozenset[EndpointAddress]] = {}
        """Unit -> its registered processes, of the units to poll or to give up."""
        self._assigned: frozenset[str] = frozenset()
        self._leaving: frozenset[str] = frozenset()
        self._kept_scheduled = self._release_scheduled = False
        self.stopping = False

    def resume(self, sources: Iterable[SourceSeries]) -> None:
        """Follow the processes of the last run, even if ZooKeeper is unreachable."""
        for series in sources:
            meta = series.meta
            if PORT in meta and series.live and not meta.get("elsewhere"):
                place = meta["context"], meta["ip"], meta[PORT]
                self._follow(EndpointAddress(*place, series.uuid, meta.get(HOST_KEY, "")), series)
        self._send_kept()  # before the leases settle

    # --- events of the coordinator

    def on_listed(self, listing: UnitListing) -> None:
        """Handle the full set of registered processes of these units."""
        self._registered.update(listing)
        registered = frozenset().union(*listing.values())
        known, gone = [endpoint for endpoint in self._followers if endpoint.unit in listing], []
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
        self._schedule_kept()

    def _mark_unregistered(self, gone: Iterable[EndpointAddress]) -> None:
        """Mark endpoints as unregistered unless they have registered again meanwhile."""
        for endpoint in gone:
            if endpoint in self._followers and endpoint not in self._registered.get(endpoint.unit, ()):
                self._followers[endpoint][0].set_registered(False)
        self._schedule_kept()

    def _schedule_kept(self) -> None:
        if not self._kept_scheduled:
            self._kept_scheduled = True
            asyncio.get_running_loop().call_later(COALESCE_S, self._send_kept)

    def _send_kept(self) -> None:
        self._kept_scheduled = False
        kept = frozenset(one.unit for one in self._followers if one not in self._registered.get(one.unit, ()))
        self._leases.set_kept(kept)

    def on_assigned(self, mine: frozenset[str], leaving: frozenset[str]) -> None:
        """Follow the processes of the units `mine` and no others; release units of `leaving` once none is polled."""
        self._assigned, self._leaving = mine, leaving
        self._registered = {unit: self._registered[unit] for unit in self._registered.keys() & (mine | leaving)}
        for endpoint in [one for one in self._followers if one.unit not in mine]:
            self._stand_down(endpoint)
        for endpoints in self._registered.values():
            self._follow_assigned(endpoints)
        self._release()

    def _follow_assigned(self, endpoints: Iterable[EndpointAddress]) -> None:
        new = [one for one in endpoints if one not in self._followers and one.unit in self._assigned]
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
            if endpoint in self._registered.get(endpoint.unit, ()):
                self._follow_assigned([endpoint])
            self._release()

    def _release(self) -> None:
        """Schedule one release of all finished units: thousands may change hands together."""
        if self._leaving and not self._release_scheduled:
            self._release_scheduled = True
            asyncio.get_running_loop().call_later(COALESCE_S, self._release_now)

    def _release_now(self) -> None:
        self._release_scheduled = False
        busy = {one.unit for one in (*self._followers, *self._standing_down)}
        for unit in self._leaving - busy:
            self._leases.released(unit)

    def poll_last(self, uuid: bytes) -> bool:
        """Poll a process as if its znode was gone: it is about to end. Return False if it is not polled here."""
        followers = [follower for endpoint, (follower, _) in self._followers.items() if endpoint.uuid == uuid]
        for follower in followers:
            follower.set_registered(False)
        return bool(followers)

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
            self._schedule_kept()
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
