"""Order statistics of classes do not depend on the way in which values are selected and members arranged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from artimon.compute import ranks
from artimon.compute.quantiles import METHODS
from artimon.compute.ranks import MemberBlock, Statistic, apply_statistic, ordered_partial
from tests.seeds import fixed_and_drawn

ODD = (0.0, 1.0, 2.5, -3.0, 7.0, np.inf, -np.inf)


def drawn_statistic(random: np.random.Generator) -> Statistic:
    if random.random() < 0.2:
        return ranks.MEDIAN
    q = float(random.choice([0.0, 1.0, 0.5, 0.95, random.random()]))
    return ranks.quantile(q, str(random.choice(list(METHODS))))


@pytest.mark.parametrize("seed", fixed_and_drawn([3], "selected statistics"))
def test_selection_gives_the_statistic_of_sorted_values(seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(300):
        shape = tuple(random.integers(1, (5, 6, 80)).tolist())
        values = random.choice(ODD, shape) if random.random() < 0.5 else random.random(shape)
        values[random.random(shape) < random.choice([0.0, 0.02])] = np.nan
        missing = random.random(shape) < random.choice([0.0, 0.2])
        values[missing], counts = np.nan, (~missing).sum(axis=-1)
        statistic = drawn_statistic(random)
        with np.errstate(all="ignore"):
            found = apply_statistic(values.copy(), counts, statistic)
            sorted_ = apply_statistic(values.copy(), counts, replace(statistic, place=None))
        assert np.array_equal(found[counts > 0], sorted_[counts > 0], equal_nan=True)


@pytest.mark.parametrize("seed", fixed_and_drawn([3], "arranged members"))
def test_members_are_arranged_by_class(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members side by side are copied together, others one by one, with the same result."""
    random = np.random.default_rng(seed)
    args = {"q": 0.9, "method": "linear"}
    for _ in range(60):
        classes, blocks = int(random.integers(1, 7)), list[MemberBlock]()
        for _ in range(int(random.integers(0, 4))):
            codes = random.integers(0, classes, int(random.integers(1, 400)))
            values, present = random.random((3, len(codes))), random.random((3, len(codes))) < 0.9
            codes = np.sort(codes) if random.random() < 0.7 else codes
            blocks.append(MemberBlock(codes, np.where(present, values, np.nan), present))
        members = np.bincount(np.concatenate([b.codes for b in blocks] or [np.zeros(0, np.int64)]), minlength=classes)
        found = []
        for least in (1, 10**9):
            monkeypatch.setattr(ranks, "LEAST_RUN", least)
            found.append(ordered_partial("quantile", args, blocks, members, 3))
        assert np.array_equal(found[0].count, found[1].count)
        there = found[0].count > 0
        assert np.array_equal(found[0].extreme[there], found[1].extreme[there])  # type: ignore[index]
