"""Ordered items of a channel, and the branches that still want each. Pure: no I/O, no clock, no threads, no locks.

Every branch (a sink or a group that reads the channel) has its own cursor over the one sequence of items. An item is
free once no branch wants it. A lagging required branch holds up the channel; an optional one never does: the items
beyond its limit are skipped and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pipeline.delivery.ordered_queue import OrderedQueue

T = TypeVar("T")
MAIN_BRANCH = ""
"""Name of the only branch of a channel without a fan-out."""


@dataclass(frozen=True, slots=True)
class BranchPolicy:
    """`required`: the channel keeps what this branch has not committed. Else it may lag by `behind_bytes`."""

    required: bool = True
    behind_bytes: int = 64 * 1024 * 1024


@dataclass(slots=True)
class _LedgerItem(Generic[T]):
    item: T
    size: int
    wanted: int
    """Number of branches that have not committed it."""
    required: int
    """Number of required branches among them."""
    since_ms: int


@dataclass(slots=True)
class _Branch:
    policy: BranchPolicy
    queue: OrderedQueue[int] = field(default_factory=OrderedQueue)
    """Numbers of the items that the branch wants."""
    pending_bytes: int = 0
    committed: int = 0
    skipped: int = 0


class BranchLedger(Generic[T]):
    """Items with ascending numbers. Invariant: the line of each branch holds the items that it wants; `used_bytes` is
    the sum over items that any branch wants, `held_bytes` and `held_count` over those that a required branch wants."""

    def __init__(self, branches: Mapping[str, BranchPolicy] | None = None) -> None:
        """At least one branch must be required, otherwise the channel would keep nothing."""
        self._branches = {name: _Branch(policy) for name, policy in (branches or {MAIN_BRANCH: BranchPolicy()}).items()}
        self._slots: dict[int, _LedgerItem[T]] = {}
        self._next = 0
        self.used_bytes = 0
        self.held_bytes = self.held_count = 0
        self._newly_settled: list[T] = []

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def branches(self) -> list[str]:
        return list(self._branches)

    def add(self, item: T, size: int, wanted_by: Iterable[str] | None = None, since_ms: int = 0) -> int:
        """Add an item and return its number. `wanted_by`: after a restart, the branches that had not committed it (at
        least one). `since_ms`: its arrival, for `oldest_ms`."""
        names = self._branches.keys() if wanted_by is None else list(wanted_by)
        number, self._next = self._next, self._next + 1
        slot = _LedgerItem(item, size, 0, 0, since_ms)
        for name in names:
            branch = self._branches[name]
            branch.queue.add(number)
            branch.pending_bytes += size
            slot.wanted += 1
            slot.required += branch.policy.required
        self._slots[number] = slot
        self.used_bytes += size
        if slot.required:
            self.held_bytes += size
            self.held_count += 1
        return number

    def take(self, name: str, most: int, most_bytes: int) -> list[tuple[int, T]]:
        """Take the next items of a branch, at least one if there is any; they stay out until `commit` or `rollback`."""
        branch = self._branches[name]
        taken: list[tuple[int, T]] = []
        size = 0
        while branch.queue and len(taken) < most:
            slot = self._slots[branch.queue.peek()]
            if taken and size + slot.size > most_bytes:
                break
            taken.append((branch.queue.take(), slot.item))
            size += slot.size
        return taken

    def commit(self, name: str, numbers: Iterable[int]) -> list[T]:
        """Commit items of a branch; return those that no branch wants any more. Items skipped or rolled back meanwhile
        are ignored."""
        branch = self._branches[name]
        mine = branch.queue.remove_taken(numbers)
        branch.committed += len(mine)
        return self._finish(branch, mine)

    def rollback(self, name: str, numbers: Iterable[int]) -> None:
        """Return items to their branch, in order."""
        self._branches[name].queue.put_back(numbers)

    def rollback_all(self) -> None:
        """Return all taken items to their branches."""
        for branch in self._branches.values():
            branch.queue.put_back(list(branch.queue.taken))

    def shed(self) -> list[T]:
        """Let each optional branch over its limit skip its oldest items; return those that no branch wants any more."""
        free: list[T] = []
        for branch in self._branches.values():
            if branch.policy.required or branch.pending_bytes <= branch.policy.behind_bytes:
                continue
            skipped = []
            spare = branch.pending_bytes - branch.policy.behind_bytes
            for number in sorted((*branch.queue, *branch.queue.taken)):
                if spare <= 0:
                    break
                spare -= self._slots[number].size
                skipped.append(number)
            free += self._skip(branch, skipped)
        return free

    def take_settled(self) -> list[T]:
        """Return the items that the last required branch has committed since the previous call."""
        found, self._newly_settled = self._newly_settled, []
        return found

    def cursor(self, name: str) -> int:
        """Return the first number that the branch has not committed: it needs no repeat of items below."""
        line = self._branches[name].queue
        return min([line.peek() if line else self._next, *line.taken])

    def item_at(self, number: int) -> T | None:
        """Return an item that some branch wants."""
        slot = self._slots.get(number)
        return None if slot is None else slot.item

    def oldest_ms(self) -> int:
        """Arrival of the oldest wanted item, epoch ms; 0 if there is none."""
        return next(iter(self._slots.values())).since_ms if self._slots else 0

    def waiting(self, name: str) -> int:
        """Number of items of a branch that may be taken now."""
        return len(self._branches[name].queue)

    def figures(self) -> dict[str, dict[str, int]]:
        """Per branch: items and bytes pending, items out, committed and skipped."""
        return {
            name or "main": {
                "pending": len(branch.queue) + len(branch.queue.taken),
                "pending_bytes": branch.pending_bytes,
                "out": len(branch.queue.taken),
                "committed": branch.committed,
                "skipped": branch.skipped,
            }
            for name, branch in self._branches.items()
        }

    def _skip(self, branch: _Branch, numbers: Sequence[int]) -> list[T]:
        gone = set(numbers)
        branch.queue.drop(lambda number: number in gone)
        branch.skipped += len(numbers)
        return self._finish(branch, numbers)

    def _finish(self, branch: _Branch, numbers: Iterable[int]) -> list[T]:
        free = []
        for number in numbers:
            slot = self._slots[number]
            branch.pending_bytes -= slot.size
            slot.wanted -= 1
            if branch.policy.required:
                slot.required -= 1
                if not slot.required:
                    self.held_bytes -= slot.size
                    self.held_count -= 1
                    self._newly_settled.append(slot.item)
            if not slot.wanted:
                del self._slots[number]
                self.used_bytes -= slot.size
                free.append(slot.item)
        return free
