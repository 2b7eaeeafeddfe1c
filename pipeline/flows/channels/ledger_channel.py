"""Base of the in-process channels: an ordered ledger with branches under one condition."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from artimon.model.batch import BatchId
from artimon.model.clock import Clock
from pipeline.flows.accepted_ids import AcceptedIds
from pipeline.flows.channels.branch_ledger import MAIN_BRANCH, BranchLedger, BranchPolicy
from pipeline.flows.context import BRANCHES, Context
from pipeline.flows.event import EventBatch
from pipeline.flows.spi import ChannelFailed, ChannelReader, Figures, Take
from pipeline.flows.transaction import Transaction


class HasId(Protocol):
    """Item with the identity of an event batch."""

    @property
    def id(self) -> BatchId | None: ...


T = TypeVar("T", bound=HasId)
MAX_TAKE_BYTES = 4 * 1024 * 1024
"""Most bytes of one take, the payload of one call to a next agent."""


class LedgerChannel(Generic[T]):
    """Channel over a Ledger of items of type T, which `_read` turns into event batches.

    Locks: `_cond` guards the ledger, the identities and the counts; no I/O under it. Put, rollback and stop wake the
    waiting threads."""

    def __init__(self, branches: Mapping[str, BranchPolicy] | None, clock: Clock) -> None:
        self._clock = clock
        self._cond = threading.Condition()
        self._policies = dict(branches) if branches else {MAIN_BRANCH: BranchPolicy()}
        self._ledger: BranchLedger[T] = BranchLedger(self._policies)
        self._open = False
        self._woken_branches: set[str] = set()
        """Branches whose next take does not wait."""
        self._pending: set[BatchId] = set()
        """Identities that a required branch has not committed."""
        self._accepted = AcceptedIds()
        """Identities that were accepted."""
        self.failure = ""
        """Reason for which the channel accepts nothing more, "" while it works."""
        self.repeats = 0
        """Event batches dropped because their identity was accepted before."""
        self.taken = 0

    def take(self, most: int, wait_s: float) -> Take:
        """Take from the first branch, the only one of a channel made without branches."""
        return self._take(next(iter(self._policies)), most, wait_s)

    def wake(self) -> None:
        """Wake the first branch, as in Waking."""
        self._wake(next(iter(self._policies)))

    def reader(self, branch: str) -> ChannelReader:
        """Return the view of one branch. Raises KeyError if the channel was made without it."""
        if branch not in self._policies:
            raise KeyError(f"no branch {branch!r}: the channel has {list(self._policies)}")
        return _BranchReader(self, branch)

    def transaction(self, deadline_s: float = 10.0) -> Transaction:
        """Return a transaction of puts or takes."""
        return Transaction(self, deadline_s)  # type: ignore[arg-type]

    @property
    def waiting(self) -> int:
        """Event batches that some branch has not committed."""
        with self._cond:
            return len(self._ledger)

    @property
    def oldest_ms(self) -> int:
        """Arrival of the oldest waiting event batch, epoch ms; 0 if none waits."""
        with self._cond:
            return self._ledger.oldest_ms()

    def done(self, id: BatchId) -> bool:
        """True if every required branch has committed the event batch."""
        with self._cond:
            return self._accepted.has(id) and id not in self._pending

    def figures(self) -> Figures:
        with self._cond:
            return {
                "oldest_ms": self._ledger.oldest_ms(),
                "parcels": len(self._ledger),
                "bytes": self._ledger.used_bytes,
                "repeats": self.repeats,
                "taken": self.taken,
                "branches": self._ledger.figures(),
                "problems": [self.failure] if self.failure else [],
            }

    def _wake(self, branch: str) -> None:
        with self._cond:
            self._woken_branches.add(branch)
            self._cond.notify_all()

    def _take(self, branch: str, most: int, wait_s: float) -> Take:
        def worth_it() -> bool:
            return not self._open or branch in self._woken_branches or bool(self._ledger.waiting(branch))

        with self._cond:
            self._cond.wait_for(worth_it, max(0.0, wait_s))
            self._woken_branches.discard(branch)
            if not self._open:
                raise ChannelFailed(self.failure or "the channel is closed")
            numbered = self._ledger.take(branch, most, MAX_TAKE_BYTES)
            self.taken += len(numbered)
        try:
            event_batches, lost = self._read([item for _, item in numbered])
        except BaseException:
            self._roll_back(branch, [n for n, _ in numbered])
            raise
        numbers = [n for n, _ in numbered]
        if lost:
            gone = {numbers[index] for index in lost}
            self._commit(branch, sorted(gone))
            numbers = [n for n in numbers if n not in gone]
        return Take(event_batches, lambda: self._commit(branch, numbers), lambda: self._roll_back(branch, numbers))

    def _read(self, items: Sequence[T]) -> tuple[list[EventBatch], list[int]]:
        """Return the event batches of items, and the indices of those that can no longer be read."""
        raise NotImplementedError

    def _release_items(self, items: Iterable[T]) -> None:
        """Release items that no branch wants any more. Not called under `_cond`."""

    def _save_cursor(self, branch: str) -> None:
        """Record the cursor of a branch. Not called under `_cond`."""

    def _close_ledger(self) -> None:
        """Close for puts and takes: waiting threads get an error, and open takes are rolled back."""
        with self._cond:
            self._open = False
            self._ledger.rollback_all()
            self._cond.notify_all()

    def _commit(self, branch: str, numbers: Sequence[int]) -> None:
        with self._cond:
            if not self._open:
                raise ChannelFailed(self.failure or "the channel is closed: its open takes are delivered again")
            free = self._ledger.commit(branch, numbers)
            self._pending.difference_update(item.id for item in self._ledger.take_settled() if item.id is not None)
            self._cond.notify_all()
        self._release_items(free)
        self._save_cursor(branch)

    def _roll_back(self, branch: str, numbers: Sequence[int]) -> None:
        with self._cond:
            self._ledger.rollback(branch, numbers)
            self._cond.notify_all()

    def _skip_excess(self) -> None:
        """Let optional branches skip the items beyond their limit. Not called under `_cond`."""
        with self._cond:
            free = self._ledger.shed()
            if free:
                self._cond.notify_all()
        if free:
            self._release_items(free)


class _BranchReader:
    """Reader of one branch of a channel."""

    def __init__(self, channel: LedgerChannel[T], branch: str) -> None:
        self._channel, self._branch = channel, branch

    def take(self, most: int, wait_s: float) -> Take:
        return self._channel._take(self._branch, most, wait_s)

    def wake(self) -> None:
        self._channel._wake(self._branch)


def branches_of(context: Context) -> Mapping[str, BranchPolicy] | None:
    """Return the branches of the flow that is being built; None for a single sink."""
    branches: Mapping[str, BranchPolicy] | None = context.shared.get(BRANCHES)
    return branches
