"""Incarnations compared with plain dictionaries, and their limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.compute.sample_order import Cells, TypeBounds
from varstore.cells.incarnations import Incarnations
from varstore.cells.past_incarnations import SEGMENT
from varstore.cells.string_pool import StringPool

SLOTS = 3 * SEGMENT
samples = st.tuples(
    st.sampled_from([0, 1, 255, 256, 300, 700]), st.integers(1, 6), st.integers(1, 50), st.integers(-9, 9)
)
Life = tuple[int, int, int, int]


def column(values: list[int]) -> Cells:
    """Return values as an int64 column of the store."""
    return np.array(values, np.int64)


def add(lives: Incarnations, rows: list[tuple[int, int, int, int]]) -> None:
    """Add integer samples (slot, birth, time, value)."""
    slots, births, times, values = (column([row[i] for row in rows]) for i in range(4))
    adding = lives.add if len(set(slots.tolist())) == len(rows) else lives.add_batch
    adding(slots, births, times, values, TypeBounds(len(rows), len(rows)), StringPool())


def held_by_slot(lives: Incarnations, floor_ms: int = -1) -> dict[int, list[Life]]:
    """Return the stored incarnations by slot."""
    found: dict[int, list[Life]] = {slot: [] for slot in range(SLOTS)}
    for row, *life in lives.read(np.arange(SLOTS), floor_ms).tolist():
        found[row].append(tuple(life))
    return {slot: mine for slot, mine in found.items() if mine}


def expected(rows: list[tuple[int, int, int, int]]) -> dict[int, list[Life]]:
    """Compute the incarnations by slot from the rows."""
    found: dict[int, list[Life]] = {}
    for slot in sorted({row[0] for row in rows}):
        for birth in sorted({row[1] for row in rows if row[0] == slot}):
            mine = [(time, value) for s, b, time, value in rows if (s, b) == (slot, birth)]
            found.setdefault(slot, []).append((birth, min(mine)[0], *max(mine)))
    return found


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(samples, min_size=1, max_size=8), max_size=12), st.data())
def test_incarnations_do_not_depend_on_the_order_of_samples(
    batches: list[list[tuple[int, int, int, int]]], data: st.DataObject
) -> None:
    """One sample a series or several in a batch; then exported to other slots, forgotten in part, pruned."""
    lives = Incarnations(SLOTS)
    for batch in batches:
        add(lives, batch)
    rows = [row for batch in batches for row in batch]
    assert held_by_slot(lives) == expected(rows)
    newest = lives.newest_ms(np.arange(SLOTS))
    assert newest.tolist() == [max([row[2] for row in rows if row[0] == slot], default=0) for slot in range(SLOTS)]
    assert lives.silent(np.arange(SLOTS), 20).tolist() == (newest <= 20).tolist()

    other, there = Incarnations(SLOTS), (np.arange(SLOTS) * 5 + 3) % SLOTS  # another order of slots
    add(other, [(1, 3, 9, 9), (1, 2, 9, 9)])
    other.load(there, lives.export(np.arange(SLOTS)))
    older = lives.export_past(np.arange(SLOTS))
    other.load_past({**older, "slot": there[older["slot"]]})
    assert held_by_slot(other) == {int(there[slot]): mine for slot, mine in expected(rows).items()}

    gone = data.draw(st.sets(st.sampled_from([0, 1, 255, 256, 700])))
    lives.forget(column(sorted(gone)))
    rest = {slot: mine for slot, mine in expected(rows).items() if slot not in gone}
    assert held_by_slot(lives) == rest
    lives.expired_ms = 25
    lives.prune(0, SLOTS)
    shown = {s: [life for life in mine if life[2] > 25 or life is mine[-1]] for s, mine in rest.items()}
    assert held_by_slot(lives) == shown
    assert lives._past.total == sum(len(mine) - 1 for mine in shown.values())


def test_a_forgotten_incarnation_that_continues_begins_anew() -> None:
    """The result is the same before and after pruning."""
    for pruned in (True, False):
        lives = Incarnations(SLOTS)
        add(lives, [(7, 1, 10, 1)])
        add(lives, [(7, 2, 20, 1)])
        lives.expired_ms = 15
        if pruned:
            lives.prune(0, SLOTS)
        add(lives, [(7, 1, 30, 5)])
        assert held_by_slot(lives) == {7: [(1, 30, 30, 5), (2, 20, 20, 1)]}


def test_values_of_incarnations_become_doubles() -> None:
    """Older incarnations are converted too."""
    lives = Incarnations(SLOTS)
    add(lives, [(7, 1, 10, 3)])
    add(lives, [(7, 2, 20, 4)])
    lives.to_double(column([7, 9]))
    assert lives.read(column([7]), -1)["last"].view(np.float64).tolist() == [3.0, 4.0]
    assert sorted(column(lives.last_cells(column([7]))).view(np.float64).tolist()) == [3.0, 4.0]


def test_incarnations_beyond_the_limits_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The incarnation that ended longest ago is dropped, of one series or where the total is exceeded; both are
    counted."""
    monkeypatch.setattr("varstore.cells.incarnations.MAX_INCARNATIONS", 3)
    lives = Incarnations(SLOTS)
    for birth in range(1, 8):
        add(lives, [(5, birth, 10 * birth, birth)])
    assert [life[0] for life in held_by_slot(lives)[5]] == [4, 5, 6, 7]
    assert lives.dropped == 3

    monkeypatch.setattr("varstore.cells.incarnations.PAST_PER_SLOT", 1)
    monkeypatch.setattr("varstore.cells.incarnations.MAX_INCARNATIONS", 1_000_000)
    lives = Incarnations(SEGMENT)
    for birth in range(1, 6):
        add(lives, [(slot, birth, 10 * birth, 0) for slot in range(SEGMENT)])
    assert lives._past.total <= SEGMENT
    assert lives._past.total + lives.dropped == 4 * SEGMENT
    assert (lives.read(np.arange(SEGMENT), 40)["birth_ms"] == 5).all()


def test_an_incarnation_takes_at_most_forty_bytes() -> None:
    """Ten births of each of 20,000 series."""
    lives = Incarnations(20_000)
    for birth in range(10):
        slots = np.arange(20_000)
        time = np.full(20_000, birth + 1)
        lives.add(slots, time, time, time, TypeBounds(20_000, 20_000), StringPool())
    older = lives._past
    real = sum(a.nbytes for a in older._incarnations.values()) + sum(a.nbytes for a in older._slots.values())
    assert lives._past.total == 180_000
    assert real <= lives.bytes() <= 180_000 * 40
