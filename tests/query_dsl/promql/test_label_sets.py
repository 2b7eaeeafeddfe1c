"""Label sets in columns: the order of series, and columns that are joined."""

from __future__ import annotations

from random import Random

import pytest

from query_dsl.promql.label_sets import FEW, LabelSets, concatenate
from tests.seeds import fixed_and_drawn


def made(random: Random, count: int, gaps: bool) -> list[dict[str, str]]:
    """Label sets of three labels; with gaps some lack one."""
    found = [{"a": f"v{random.randrange(9)}", "b": f"w{random.randrange(50)}", "c": str(i)} for i in range(count)]
    for one in found:
        if gaps and random.random() < 0.3:
            del one[random.choice("abc")]
    return found


@pytest.mark.parametrize("seed", fixed_and_drawn((1,), "promql label sets", 1))
def test_series_are_ordered_by_name_and_value_of_each_label(seed: int) -> None:
    random = Random(seed)
    for count in (0, 1, FEW, 3 * FEW):
        for gaps in (False, True):
            found = made(random, count, gaps)
            random.shuffle(found)
            sets = LabelSets.from_dicts([{**one, "none": ""} for one in found])
            wanted = sorted(range(count), key=lambda i, found=found: sorted(found[i].items()))  # type: ignore[misc]
            assert [found[i] for i in sets.sort_order().tolist()] == [found[i] for i in wanted]


@pytest.mark.parametrize("seed", fixed_and_drawn((1,), "promql label sets joined", 1))
def test_joined_columns_have_the_labels_of_all_parts(seed: int) -> None:
    random = Random(seed)
    parts = [made(random, 40, gaps) for gaps in (False, False, True)]
    parts.append(parts[0])  # with equal values
    for some in (parts, parts[::3]):
        assert concatenate([LabelSets.from_dicts(part) for part in some]).dicts() == [
            dict(sorted(one.items())) for part in some for one in part
        ]
