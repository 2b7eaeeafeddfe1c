"""Lives of a series that several sources report, as lives that come one after another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.void]


def succession(lives: Table) -> Table:
    """Lives (BIRTH_TYPE, in any order) sorted by (row, birth), those of each series one after another in time.

    Lives of one source come so already. Those of two sources may overlap: then neither follows the other, and both are
    one life, born when the one that was seen first was born. One that begins after another was over, but says that it
    was born before that one, is born when that one was over."""
    if len(lives) < 2:
        return lives
    table = lives[np.lexsort((lives["birth_ms"], lives["first_ms"], lives["row"]))]
    same = table["row"][1:] == table["row"][:-1]
    overlap = table["first_ms"][1:] < table["last_ms"][:-1]
    wrong = same & (overlap | (table["birth_ms"][1:] <= table["birth_ms"][:-1]))
    if not wrong.any():
        return table
    mine = np.isin(table["row"], table["row"][1:][wrong])
    apart = table[mine]
    made = [_in_a_row(part) for part in np.split(apart, np.flatnonzero(np.diff(apart["row"])) + 1)]
    whole = np.concatenate((table[~mine], *made))
    return whole[np.argsort(whole["row"], kind="stable")]


def _in_a_row(lives: Table) -> Table:
    """Of one series, by the time of their first samples."""
    made = lives[:1].copy()
    for life in lives[1:]:
        before = made[-1]
        if life["first_ms"] < before["last_ms"]:
            if life["last_ms"] > before["last_ms"]:
                for name in ("last_ms", "last"):
                    made[name][-1] = life[name]
            continue
        made = np.append(made, life)
        if life["birth_ms"] <= before["birth_ms"]:
            made["birth_ms"][-1] = max(int(before["last_ms"]), int(before["birth_ms"]) + 1)
    return made
