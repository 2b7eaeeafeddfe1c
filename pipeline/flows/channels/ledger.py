"""What a channel holds, in order, and which branch still wants it. Pure: no I/O, no clock, no threads, no locks.

Every branch (a sink or a group that reads the channel) has a cursor of its own over the one sequence of items. An item
is free once no branch wants it. Required branches hold up the channel when they fall behind; an optional one never
does: what it is too far behind for is skipped and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pipeline.delivery.ordered_queue import OrderedQueue

T = TypeVar("T")
MAIN = ""
"""The branch of a channel that has only one."""


@dataclass(frozen=True, slots=True)
class BranchPolicy:
    """`required`: the channel holds on to what this branch wants. Else it may be `behind_bytes` behind."""

    required: bool = True
    behind_bytes: int = 64 * 1024 * 1024


@dataclass(slots=True)
class _Slot(Generic[T]):
    item: T
    size: int
    wanted: int
    """Branches that have not committed it."""
    required: int
    """Those among them that are required."""
    since_ms: int


@dataclass(slots=True)
class _Branch:
    policy: BranchPolicy
    line: OrderedQueue[int] = field(default_factory=OrderedQueue)
    """Numbers of the items that it wants."""
    pending_bytes: int = 0
    committed: int = 0
    skipped: int = 0


class Ledger(Generic[T]):
    """Items have numbers that grow as they are added. Invariant: the line of each branch holds the items that
    it wants; `used_bytes` is the sum over items that any branch wants, `held_bytes` and
    `held_count` over those that a required branch wants."""

    def __init__(self, branches: Mapping[str, BranchPolicy] | None = None) -> None:
        """At least one branch is required, else nothing would hold anything."""
        self._branches = {name: _Branch(policy) for name, policy in (branches or {MAIN: BranchPolicy()}).items()}
        self._slots: dict[int, _Slot[T]] = {}
        self._next = 0
        self.used_bytes = 0
        self.held_bytes = self.held_count = 0
        self._settled: list[T] = []

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def branches(self) -> list[str]:
        return list(self._branches)

    def add(self, item: T, size: int, wanted_by: Iterable[str] | None = None, since_ms: int = 0) -> int:
        """Its number. `wanted_by`: after a restart, the branches that had not committed it (at least one). `since_ms`:
        when it came, for `oldest_ms`."""
        names = self._branches.keys() if wanted_by is None else list(wanted_by)
        number, self._next = self._next, self._next + 1
        slot = _Slot(item, size, 0, 0, since_ms)
        for name in names:
            branch = self._branches[name]
            branch.line.add(number)
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
        """The next items of a branch, at least one if there is any; they are out until `commit` or `rollback`."""
        branch = self._branches[name]
        taken: list[tuple[int, T]] = []
        size = 0
        while branch.line and len(taken) < most:
            slot = self._slots[branch.line.peek()]
            if taken and size + slot.size > most_bytes:
                break
            taken.append((branch.line.take(), slot.item))
            size += slot.size
        return taken

    def commit(self, name: str, numbers: Iterable[int]) -> list[T]:
        """A branch has done with these; returns the items that nobody wants any more. What was skipped or rolled back
        meanwhile does not count."""
        branch = self._branches[name]
        mine = branch.line.settle(numbers)
        branch.committed += len(mine)
        return self._done(branch, mine)

    def rollback(self, name: str, numbers: Iterable[int]) -> None:
        """These come again, before everything younger."""
        self._branches[name].line.back(numbers)

    def rollback_all(self) -> None:
        """Nothing is out any more."""
        for branch in self._branches.values():
            branch.line.back(list(branch.line.out))

    def shed(self) -> list[T]:
        """Let optional branches that are too far behind skip their oldest items; returns what nobody wants any more."""
        free: list[T] = []
        for branch in self._branches.values():
            if branch.policy.required or branch.pending_bytes <= branch.policy.behind_bytes:
                continue
            skipped = []
            spare = branch.pending_bytes - branch.policy.behind_bytes
            for number in sorted((*branch.line, *branch.line.out)):
                if spare <= 0:
                    break
                spare -= self._slots[number].size
                skipped.append(number)
            free += self._skip(branch, skipped)
        return free

    def settled(self) -> list[T]:
        """The items that the last required branch has done with since this was asked last."""
        found, self._settled = self._settled, []
        return found

    def cursor(self, name: str) -> int:
        """The first number that the branch has not done with: everything below needs no repeat for it."""
        line = self._branches[name].line
        return min([line.peek() if line else self._next, *line.out])

    def item(self, number: int) -> T | None:
        """An item that some branch wants."""
        slot = self._slots.get(number)
        return None if slot is None else slot.item

    def oldest_ms(self) -> int:
        """When the oldest item that some branch wants came; 0 if there is none."""
        return next(iter(self._slots.values())).since_ms if self._slots else 0

    def waiting(self, name: str) -> int:
        """Items of a branch that may be taken now."""
        return len(self._branches[name].line)

    def figures(self) -> dict[str, dict[str, int]]:
        """Per branch: items and bytes pending, out, committed, skipped."""
        return {
            name or "main": {
                "pending": len(branch.line) + len(branch.line.out),
                "pending_bytes": branch.pending_bytes,
                "out": len(branch.line.out),
                "committed": branch.committed,
                "skipped": branch.skipped,
            }
            for name, branch in self._branches.items()
        }

    def _skip(self, branch: _Branch, numbers: Sequence[int]) -> list[T]:
        gone = set(numbers)
        branch.line.drop(lambda number: number in gone)
        branch.skipped += len(numbers)
        return self._done(branch, numbers)

    def _done(self, branch: _Branch, numbers: Iterable[int]) -> list[T]:
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
                    self._settled.append(slot.item)
            if not slot.wanted:
                del self._slots[number]
                self.used_bytes -= slot.size
                free.append(slot.item)
        return free
