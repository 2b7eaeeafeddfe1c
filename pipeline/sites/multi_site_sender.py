"""Agent with several sites: one sender, tracker and ZooKeeper watcher for each, over one log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artimon.model.batch import BatchId
from artimon.model.clock import Clock
from artimon.model.ranges import LaneId
from artimon.runtime.zookeeper_client import zookeeper_client
from pipeline.control.ack_watcher import AckWatcher
from pipeline.delivery.send_planner import PlannedCall
from pipeline.delivery.sender import Sender
from pipeline.delivery.tracker import Tracker
from pipeline.link.collector_choice import CollectorMode
from pipeline.link.collector_client import CallResult, CollectorCallError
from pipeline.sites.announcement_cache import AnnouncementCache, send_announcements
from pipeline.sites.site_binding import SiteAssignment
from pipeline.sites.site_record import load_record, save_record
from pipeline.sites.site_router import SiteRouter
from pipeline.wal.log import LogEntry, WriteAheadLog
from pipeline.wal.recovery import Recovery
from pipeline.wal.segment_format import RecordType
from pipeline.wal.segments import CorruptRecordError
from pipeline.wal.state_records import LogPosition

log = logging.getLogger(__name__)

TICK_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Site:
    """A data centre with its own ZooKeeper ensemble, Kafka and store, as an agent knows it."""

    name: str
    zookeeper: str


class SiteSender(Sender):
    """Sender of one site. The batches of a call are bound to the site, also on disk, before they are sent."""

    def __init__(
        self,
        site: str,
        links: MultiSiteSender,
        wal: WriteAheadLog,
        tracker: Tracker,
        agent: str,
        clock: Clock,
    ) -> None:
        super().__init__(wal, tracker, agent, clock, cond=links.cond)
        self.site, self._multi_site = site, links
        self._bound_before: dict[LaneId, int] = {}
        """Highest number bound to the site before the call in progress, by lane."""

    def has_collector(self) -> bool:
        """Return True if a collector of the site may be tried."""
        with self._cond:
            return self._planner.collectors.pick(self._clock.monotonic()) is not None and bool(
                self._planner.collectors.count_healthy()
            )

    def count_new(self, size: int) -> None:
        """Count `size` bytes that are to be sent. Under the condition."""
        self._planner.limiter.count_new(size)

    def _prepare(self, call: PlannedCall) -> str:
        placing, lane = self._multi_site.router, call.group.lane
        with self._cond:
            self._bound_before[lane] = top = placing.bound_until.get(lane, -1)
            to_save = placing.bind(self.site, call.group)
        if to_save and not self._multi_site.save():
            with self._cond:
                placing.unbind(self.site, call.group, top)
                del self._bound_before[lane]
            return "the record of sites cannot be written"
        return ""

    def _end(self, call: PlannedCall, heard: CallResult) -> None:
        with self._cond:
            top = self._bound_before.pop(call.group.lane, None)
            if top is not None:
                self._multi_site.router.end_call(self.site, call.group, top, heard.value, heard.reached)
        super()._end(call, heard)


class MultiSiteSender:
    """Implements the interface of a `Sender` for the agent. `home`: sender of the preferred site, whose ZooKeeper is
    also that of the control plane; the other sites have a `AckWatcher` here.

    Locks: `cond` guards every tracker and the decisions of each sender; `_saving` is held while the record is written,
    so that an older one never replaces a newer one. Order: `_saving`, then `cond`; no I/O under `cond`."""

    def __init__(
        self,
        sites: Sequence[Site],
        wal: WriteAheadLog,
        data: Path,
        agent: str,
        topic: str,
        clock: Clock,
        *,
        ack_on_sent: bool = False,
        patience_s: float = 60.0,
        return_s: float = 60.0,
    ) -> None:
        """Raise SiteRecordError if the record of lanes and sites cannot be read."""
        self.cond = threading.Condition()
        self._log, self._data, self._clock = wal, data, clock
        self._saving = threading.Lock()
        trackers = {site.name: Tracker(ack_on_sent) for site in sites}
        binding = SiteAssignment([site.name for site in sites], patience_s, return_s)
        self.router = SiteRouter(binding, trackers, load_record(data))
        self.senders = {
            site.name: SiteSender(site.name, self, wal, trackers[site.name], agent, clock) for site in sites
        }
        self.home = self.senders[sites[0].name]
        self._clients = {site.name: zookeeper_client(site.zookeeper) for site in sites[1:]}
        self._controls = {name: AckWatcher(client, self.senders[name], topic) for name, client in self._clients.items()}
        self._announcements = AnnouncementCache()
        self._stop = threading.Event()
        runs = {"sites": self._watch, "site names": self._send_announcements}
        self._threads = [threading.Thread(target=run, name=name, daemon=True) for name, run in runs.items()]
        self.problem = ""

    def restore(self, found: Recovery, now_ms: int, ack_on_sent: bool) -> list[tuple[BatchId, LogPosition]]:
        """Restore the content of a log. Returns the batches that need not be kept because sending was their ack."""
        rows, acked = [], []
        for header, place in (*found.batches, *found.series):
            position = found.sent.get(header.id)
            if position is not None and ack_on_sent and not position.is_future:
                acked.append((header.id, place))
            else:
                rows.append((header, place, position, min(now_ms, header.poll_ms)))
        with self.cond:
            self.router.restore(rows)
        for header, place in found.series:
            try:
                self._announcements.add(header, self._log.read(place))
            except (CorruptRecordError, OSError) as error:
                log.error("announcement of %s: %s", header.source, error)
        return acked

    # --- interface of a sender

    def start(self) -> None:
        for sender in self.senders.values():
            sender.start()
        for name, client in self._clients.items():
            client.start_async()
            self._controls[name].start()
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Stop within about `timeout_s` and a second."""
        self._stop.set()
        for sender in self.senders.values():
            sender.stop(timeout_s / len(self.senders))
        for name, client in self._clients.items():
            self._controls[name].stop(0.2)
            client.stop()
            client.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(0.5)

    def add_logged(self, placed: Sequence[tuple[LogEntry, LogPosition]]) -> None:
        """Add durable entries, which may be sent now."""
        for entry, _ in placed:
            if entry.type == RecordType.SERIES:
                self._announcements.add(entry.header, entry.payload)
        with self.cond:
            got = self.router.add_logged(((entry.header, place) for entry, place in placed), self._clock.now_ms())
            for site, size in got.items():
                self.senders[site].count_new(size)
            self.cond.notify_all()

    def set_paused(self, held: bool) -> None:
        for sender in self.senders.values():
            sender.set_paused(held)

    def set_groups(self, groups: tuple[str, ...], mode: CollectorMode) -> None:
        for sender in self.senders.values():
            sender.set_groups(groups, mode)

    def set_limits(self, credits: int, backlog: float) -> None:
        for sender in self.senders.values():
            sender.set_limits(credits, backlog)

    def set_level(self, ack_on_sent: bool) -> None:
        for sender in self.senders.values():
            sender.set_level(ack_on_sent)

    def unacked(self) -> list[Any]:
        """Return the batches that wait for acks, at all sites."""
        return [one for sender in self.senders.values() for one in sender.unacked()]

    @property
    def buffer_full_reason(self) -> str:
        return next((full for sender in self.senders.values() if (full := sender.buffer_full_reason)), "")

    def problems(self) -> list[str]:
        """Return the problems of the sites to show to operators."""
        found = [self.problem] if self.problem else []
        found += [f"site {name}: {control.problem}" for name, control in self._controls.items() if control.problem]
        with self.cond:
            away = sorted({site for site in self.router.binding.lanes.values() if site != self.home.site})
        if away:
            found.append(f"lanes are away from site {self.home.site}, at {', '.join(away)}")
        return found

    def figures(self) -> dict[str, Any]:
        """Return the joint counts of all sites, and beside them the counts of each."""
        each = {name: sender.figures() for name, sender in self.senders.items()}
        with self.cond:
            bound = self.router.bound_counts()
            lanes = {str(lane): site for lane, site in self.router.binding.lanes.items()}
            moved, released = self.router.moved, self.router.released
        joined = merge_figures(list(each.values()))
        kept = ("pending_batches", "unsent_batches", "acked_batches", "collectors_up", "oldest_unacked_ms")
        sites = {name: {key: own[key] for key in kept} | {"bound": bound.get(name, {})} for name, own in each.items()}
        return {**joined, "sites": sites, "site_lanes": lanes, "moved_batches": moved, "released_batches": released}

    def release(self, lane: int) -> str:
        """Release batches of lanes of this number that wait at unreachable sites. Returns a text for the operator."""
        up = self._reachable()
        with self.cond:
            before = self.router.released
            moves = self.router.release(lane, up)
            count = self.router.released - before
            self.cond.notify_all()
        if not moves:
            return f"lane {lane} has no batches at an unreachable site: nothing was released"
        log.warning("lane %d released by an operator: %s", lane, moves)
        return "; ".join(f"lane {m.lane}: from {m.site} to {m.to}" for m in moves) + f"; {count} batches had been sent"

    def save(self) -> bool:
        """Write the present record; it is on disk when this returns True."""
        with self._saving:
            with self.cond:
                version, data = self.router.record.version, self.router.record.to_json()
                saved = self.router.record.saved
            if version <= saved:
                return True
            try:
                save_record(self._data, data)
            except OSError as error:
                self.problem = f"{self._data}: the record of sites cannot be written ({error}): nothing is sent"
                log.error("%s", self.problem)
                return False
            with self.cond:
                self.router.record.saved, self.problem = version, ""
            return True

    def _reachable(self) -> list[str]:
        return [name for name, sender in self.senders.items() if sender.has_collector()]

    def _watch(self) -> None:
        while not self._clock.wait(self._stop, TICK_INTERVAL_S):
            try:
                up = self._reachable()
                with self.cond:
                    moves = self.router.move_due(self._clock.monotonic(), up, self._log.segment_range)
                    if moves:
                        self.cond.notify_all()
                for move in moves:
                    log.warning("lane %s: unsent batches go to site %s instead of %s", move.lane, move.to, move.site)
            except Exception:  # lanes that never move again would fill the disk
                log.exception("sites")

    def _send_announcements(self) -> None:
        while not self._clock.wait(self._stop, TICK_INTERVAL_S):
            with self.cond:
                away = {site for site in self.router.binding.lanes.values() if site != self.home.site}
            for site in sorted(away):
                try:
                    while not self._stop.is_set() and send_announcements(
                        self._announcements, site, self.senders[site].client
                    ):
                        pass
                except CollectorCallError:
                    pass  # retried at the next turn; the client reports why
                except Exception:
                    log.exception("announcements to site %s cannot be sent; retrying", site)


_SUMS_MS = ("ack_waits_ms",)
"""Times that are summed; of other times the longest counts."""


def merge_figures(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sum counts, take the greatest age and the first text, and sum dictionaries key by key (the maximum for times)."""
    joined: dict[str, Any] = {}
    for name, first in each[0].items():
        values = [one[name] for one in each]
        if isinstance(first, dict):
            whole = max if name.endswith("_ms") else sum
            joined[name] = {key: whole(v.get(key, 0) for v in values) for v in values for key in v}
        elif isinstance(first, str):
            joined[name] = next((value for value in values if value), "")
        elif name.endswith("_ms") and name not in _SUMS_MS:
            joined[name] = max(values)
        else:
            joined[name] = sum(values)
    return joined


def parse_sites(texts: Sequence[str]) -> tuple[Site, ...]:
    """Parse NAME=HOST:PORT[,HOST:PORT][/chroot], in order of preference. Raises ValueError."""
    sites = []
    for text in texts:
        name, equals, zookeeper = text.partition("=")
        if not equals or not zookeeper or not name.replace("-", "").replace("_", "").isalnum():
            raise ValueError(f"site {text!r}: write NAME=ZOOKEEPER, such as paris=10.0.0.1:2181")
        sites.append(Site(name, zookeeper))
    if len({site.name for site in sites}) != len(sites):
        raise ValueError("sites: give each its own name")
    return tuple(sites)
