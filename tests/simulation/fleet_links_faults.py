"""Faults planted into the choice of collectors, the notices and the control plane, each of which a run must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from pipeline.collector.notice_board import NoticeBoard
from pipeline.control import ack_watcher, collector_notices
from pipeline.control.collector_notices import CollectorNotices
from pipeline.control.control_plane import ControlPlane
from pipeline.control.control_tree import ControlTree
from pipeline.link.collector_choice import CollectorEndpoint, Collectors
from pipeline.link.config_changes import ConfigChanges

Patch = Callable[[], Any]
UPDATE, READ_TREE = Collectors.update, ControlPlane._read_tree


def _orders_by_name(self: Collectors, found: Mapping[str, CollectorEndpoint]) -> None:
    self.agent = "everybody"
    UPDATE(self, found)


def _keeps_scopes_for_itself(self: CollectorNotices, notice: Any) -> None:
    if notice.known:
        self._changes = ConfigChanges(notice.lineage, notice.change)


def _reads_ten_times(self: ControlPlane) -> None:
    for _ in range(10):
        READ_TREE(self)


FAULTS: dict[str, tuple[str, Patch]] = {
    "reads of a server that lags": (
        "an agent reads what its collector told from a server that does not have it yet",
        lambda: mock.patch.object(ControlTree, "sync", return_value=None),
    ),
    "all agents choose alike": (
        "the order of the collectors is the same for every agent",
        lambda: mock.patch.object(Collectors, "update", _orders_by_name),
    ),
    "retries without a pause": (
        "an agent without a collector asks for notices fifty times a second",
        lambda: mock.patch.multiple(collector_notices, MIN_RETRY_S=0.02, MAX_RETRY_S=0.02),
    ),
    "notices of changes ignored": (
        "an agent does not read a configuration of which its collector told",
        lambda: mock.patch.object(CollectorNotices, "_take_config", _keeps_scopes_for_itself),
    ),
    "changes not published": (
        "a collector tells of changes only at the next call",
        lambda: mock.patch.object(NoticeBoard, "publish", return_value=None),
    ),
    "configuration read ten times": (
        "a push costs each agent ten times its reads",
        lambda: mock.patch.object(ControlPlane, "_read_tree", _reads_ten_times),
    ),
    "list of collectors polled": (
        "agents read the list of collectors every second instead of hearing of changes",
        lambda: mock.patch.multiple(ack_watcher.AckWatcher, _is_told=False, _pause_s=lambda _self: 1.0),
    ),
}


@contextmanager
def planted_in_links(name: str) -> Iterator[None]:
    """Plant one fault."""
    with FAULTS[name][1]():
        yield
