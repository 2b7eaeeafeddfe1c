"""Slot table compared with a plain dictionary, and the invariants of units and freed slots."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from artimon.model.batch import BatchId
from tests.seeds import fixed_and_drawn
from tests.varstore.worlds import TestBatch, range_of
from varstore.index.slot_table import NO_SLOT, UNIT_SLOTS, SlotTable
from varstore.store.range_admission import vshard_of
from varstore.store.run_builder import OwnedBatch, RunBuilder

prints = st.integers(0, 40).map(lambda n: n if n % 2 else 2**64 - 1 - n)
vshards = st.sampled_from([0, 1, 255])
Prints = npt.NDArray[np.uint64]


def array(values: list[int]) -> Prints:
    """Return fingerprints as the table expects them."""
    return np.array(values, np.uint64)


class PlainTable(RuleBasedStateMachine):
    """Every operation on a table, and a dictionary."""

    CAPACITY = 30

    def __init__(self) -> None:
        super().__init__()
        self.table = SlotTable(self.CAPACITY)
        self.held: dict[tuple[int, int], int] = {}
        self.barred: set[tuple[int, int]] = set()

    @rule(wanted=st.lists(prints, max_size=12), vshard=vshards)
    def add(self, wanted: list[int], vshard: int) -> None:
        """Series get free slots in order until there is no room."""
        slots = self.table.add(array(wanted), vshard).tolist()
        for print_, slot in zip(wanted, slots, strict=True):
            key = (vshard, print_)
            if key in self.held:
                assert slot == self.held[key]
            elif key in self.barred or len(self.held) == self.CAPACITY or self.table.closed:
                assert slot == NO_SLOT
            else:
                assert slot not in self.held.values()
                self.held[key] = slot

    @rule(number=st.integers(0, 29), many=st.integers(1, 20))
    def free(self, number: int, many: int) -> None:
        """Free some slots."""
        gone = sorted(self.held)[number : number + many]
        before = self.table.epoch
        self.table.free(np.array([self.held.pop(key) for key in gone], np.int64))
        assert (self.table.epoch != before) == bool(gone)

    @rule(print_=prints, vshard=vshards)
    def bar(self, print_: int, vshard: int) -> None:
        """Bar a series that has no slot."""
        if (vshard, print_) not in self.held:
            self.table.refuse([print_], vshard)
            self.barred.add((vshard, print_))

    @rule(print_=prints, vshard=vshards)
    def unbar(self, print_: int, vshard: int) -> None:
        """Remove a bar, if there is one."""
        assert self.table.allow(print_, vshard) == ((vshard, print_) in self.barred)
        self.barred.discard((vshard, print_))

    @rule(closed=st.booleans())
    def close(self, closed: bool) -> None:
        """Close the table, as for lack of memory."""
        self.table.closed = closed

    @rule()
    def restored(self) -> None:
        """Restore into an empty table: the same series get the same slots."""
        keys = sorted(self.held)
        slots = np.array([self.held[key] for key in keys], np.int64)
        other = SlotTable(self.CAPACITY)
        for half in (slice(0, len(keys) // 2), slice(len(keys) // 2, None)):
            some = keys[half]
            other.restore(slots[half], array([p for _, p in some]), np.array([v for v, _ in some], np.uint8))
        for (vshard, print_), slot in self.held.items():
            assert other.find(array([print_]), vshard).tolist() == [slot]
        other.closed = self.table.closed
        for vshard, print_ in self.barred:
            other.refuse([print_], vshard)
        self.table = other

    @invariant()
    def same(self) -> None:
        """Compare every query with the dictionary."""
        every = array([n if n % 2 else 2**64 - 1 - n for n in range(41)])
        for vshard in (0, 1, 2, 255):
            expected = [self.held.get((vshard, print_), NO_SLOT) for print_ in every.tolist()]
            assert self.table.find(every, vshard).tolist() == expected
            assert self.table.holds_series(np.array(expected), every, vshard).tolist() == [
                slot >= 0 for slot in expected
            ]
            assert self.table.of(vshard).tolist() == sorted(slot for slot in expected if slot >= 0)
        assert self.table.live == len(self.held)
        assert max(self.held.values(), default=-1) < self.table.used <= self.table.size
        self._twins()

    def _twins(self) -> None:
        slots = np.array(sorted(self.held.values()), np.int64)
        named = {slot: print_ for (_, print_), slot in self.held.items()}
        several = [slot for slot in slots.tolist() if list(named.values()).count(named[slot]) > 1]
        assert sorted(self.table.twins(slots).tolist()) == several
        for slot in slots.tolist():
            others = sorted(other for other in named if named[other] == named[slot] and other != slot)
            assert sorted(self.table.twins_of(slot)) == others
        for first in range(0, self.table.used, UNIT_SLOTS):
            owners = {vshard for (vshard, _), slot in self.held.items() if first <= slot < first + UNIT_SLOTS}
            assert len(owners) <= 1


PlainTable.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestPlainTable = PlainTable.TestCase


@pytest.mark.parametrize("seed", fixed_and_drawn([7], "slots"))
def test_slots_are_assigned_in_order_up_to_the_capacity(seed: int) -> None:
    """Slots are consecutive, duplicates share one, and fingerprints beyond the capacity are refused."""
    prints = np.random.default_rng(seed).integers(0, 2**64, 30_000, np.uint64)
    prints[:3] = [0, 2**64 - 1, prints[3]]
    table = SlotTable(20_000)
    for part in np.split(prints, 30):
        table.add(part, 3)
    distinct = list(dict.fromkeys(prints.tolist()))
    expected = {print_: slot if slot < 20_000 else NO_SLOT for slot, print_ in enumerate(distinct)}
    assert table.find(prints, 3).tolist() == [expected[p] for p in prints.tolist()]
    assert (table.used, table.refusals) == (20_000, len(distinct) - 20_000)


def test_many_replacements_of_series_do_not_degrade_the_table() -> None:
    """Probes stay short and slots are reused, although every series is replaced thirty times."""
    rng = np.random.default_rng(1)
    table = SlotTable(4_096)
    held: dict[int, Prints] = {}
    for round_ in range(120):
        vshard = round_ % 4
        if vshard in held:
            table.free(table.find(held[vshard], vshard))
        held[vshard] = rng.integers(0, 2**64, 1_000, np.uint64)
        assert (table.add(held[vshard], vshard) != NO_SLOT).all()
    assert table.used <= 5_000
    assert table._tombstones < table.live
    for vshard, mine in held.items():
        assert len(set(table.find(mine, vshard).tolist())) == 1_000


def test_small_virtual_shards_waste_little() -> None:
    """Ten series in each of 256 virtual shards, one of them a twin of a series of the next shard."""
    table = SlotTable(10_000)
    for vshard in range(256):
        table.add(array([vshard // 2, *(1_000 * vshard + i for i in range(1_000, 1_009))]), vshard)
    assert table.used <= 256 * UNIT_SLOTS
    assert len(table.twins(np.flatnonzero(table.in_use[: table.used]))) == 256


def test_invalid_slots_are_not_restored() -> None:
    """Slots beyond the table, or of two virtual shards in one unit."""
    table = SlotTable(100)
    for slots, owners in (([table.size], [1]), ([0, 1], [1, 2])):
        with pytest.raises(ValueError, match="slot"):
            table.restore(np.array(slots), np.arange(len(slots), dtype=np.uint64), np.array(owners, np.uint8))
    assert table.live == 0


def batch(number: int, source: str, *series: int, append_ms: int = 1_800_000_000_000) -> TestBatch:
    """Return a batch with samples of some series."""
    return TestBatch(BatchId("a", 1, 0, number), source, append_ms, [(s, 0, 0, 1) for s in series])


def runs(intake: RunBuilder, *batches: TestBatch) -> list[list[int]]:
    """Return the slots of each run of a range."""
    range_ = range_of(batches, 0, len(batches))
    pieces, row = [], 0
    for entry in range_.entries:
        pieces.append((entry, row, row + entry.rows))
        row += entry.rows
    return [run.slots.tolist() for run in intake.runs([OwnedBatch(*piece) for piece in pieces], range_.samples)]


def test_a_repeated_series_begins_a_new_run() -> None:
    """Batches of different series share a run, whatever their source; a repeated series begins another run."""
    intake = RunBuilder(SlotTable(1_000))
    one, two = runs(intake, batch(0, "s0", 1, 2), batch(1, "s129", 3, 4), batch(2, "s1", 1), batch(3, "s0", 2, 5))
    assert len(one) == 5
    assert (len(two), two[0]) == (2, one[1])
    assert [len(run) for run in runs(intake, batch(0, "s0", 6), batch(1, "s0", 7, 7), batch(2, "s0", 8))] == [1, 2, 1]
    hours = [batch(i, "s0", i, append_ms=1_800_000_000_000 + after) for i, after in enumerate([0, 1, 3_600_000])]
    assert [len(run) for run in runs(intake, *hours)] == [1, 2]  # retention may differ from hour to hour


def test_cached_slots_are_not_used_after_they_were_freed() -> None:
    """Other series may have these slots by then."""
    table = SlotTable(1_000)
    intake = RunBuilder(table)
    (before,) = runs(intake, batch(0, "s0", 1, 2))
    table.free(np.array(before))
    assert set(table.add(array([3, 4]), vshard_of("s0")).tolist()) == set(before)
    (after,) = runs(intake, batch(1, "s0", 1, 2))
    assert not set(after) & set(before)


def test_cached_refusals_end_when_there_is_room() -> None:
    """They do not end before."""
    table = SlotTable(1)
    intake = RunBuilder(table)
    assert runs(intake, batch(0, "s0", 1, 2)) == [[0, NO_SLOT]]
    assert runs(intake, batch(1, "s0", 1, 2)) == [[0, NO_SLOT]]
    assert table.refusals == 1
    table.free(np.array([0]))
    table.refuse([1], vshard_of("s0"))
    assert runs(intake, batch(2, "s0", 1, 2)) == [[NO_SLOT, 0]]
