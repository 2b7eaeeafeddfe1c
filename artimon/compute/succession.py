"""Normalization of overlapping incarnations of a series, caused by several sources or a clock that went back, to
consecutive ones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from artimon.compute.cells import Ints
from artimon.model.select import INCARNATION_DTYPE

Table = npt.NDArray[np.void]


def normalize_incarnations(lives: Table) -> Table:
    """Sort incarnations (BIRTH_TYPE, in any order) by (row, birth), consecutive in time for each series.

    Those of one source are nearly always consecutive already. Overlapping ones of two sources are merged into one, with
    the start time of the one sampled first. If one begins after the end of another but has an earlier start time, its
    start time is moved right after the last sample of the other."""
    if _is_consecutive(lives):
        return lives
    table = lives[np.lexsort((lives["birth_ms"], lives["first_ms"], lives["row"]))]
    same = table["row"][1:] == table["row"][:-1]
    overlap = table["first_ms"][1:] < table["last_ms"][:-1]
    wrong = same & (overlap | (table["birth_ms"][1:] <= table["birth_ms"][:-1]))
    if not wrong.any():
        return table
    mine = np.isin(table["row"], table["row"][1:][wrong])
    apart = table[mine]
    made = [_make_consecutive(part)[0] for part in np.split(apart, np.flatnonzero(np.diff(apart["row"])) + 1)]
    whole = np.concatenate((table[~mine], *made))
    return whole[np.argsort(whole["row"], kind="stable")]


def normalize_start_times(owner: Ints, time_ms: Ints, birth_ms: Ints) -> Ints:
    """Return the normalized start time of each sample; samples are sorted by (owner, time)."""
    back = (birth_ms[1:] < birth_ms[:-1]) & (owner[1:] == owner[:-1])
    if not back.any():
        return birth_ms
    made = birth_ms.copy()
    for series in np.unique(owner[1:][back]).tolist():
        first, end = np.searchsorted(owner, [series, series + 1])
        made[first:end] = _normalize_series(time_ms[first:end], birth_ms[first:end])
    return made


def _normalize_series(time_ms: Ints, birth_ms: Ints) -> Ints:
    """`normalize_start_times` of one series."""
    births, first, life_of = np.unique(birth_ms, return_index=True, return_inverse=True)
    lives = np.zeros(len(births), INCARNATION_DTYPE)
    lives["birth_ms"], lives["first_ms"] = births, time_ms[first]
    np.maximum.at(lives["last_ms"], life_of.reshape(-1), time_ms)
    order = np.lexsort((lives["birth_ms"], lives["first_ms"]))
    made, into = _make_consecutive(lives[order])
    found = np.zeros(len(births), np.int64)
    found[order] = made["birth_ms"][into]
    return found[life_of.reshape(-1)]


def _is_consecutive(lives: Table) -> bool:
    """True if incarnations are sorted and consecutive: the usual case, and a fast check."""
    if len(lives) < 2:
        return True
    row, birth = lives["row"], lives["birth_ms"]
    if (row[1:] < row[:-1]).any():
        return False
    next_of = np.flatnonzero(row[1:] == row[:-1])
    later = birth[next_of + 1] > birth[next_of]
    return bool((later & (lives["first_ms"][next_of + 1] >= lives["last_ms"][next_of])).all())


def _make_consecutive(lives: Table) -> tuple[Table, list[int]]:
    """Make incarnations of one series, sorted by first sample, consecutive; also return the new index of each."""
    made, into = lives[:1].copy(), [0]
    for life in lives[1:]:
        before = made[-1]
        if life["first_ms"] < before["last_ms"]:
            if life["last_ms"] > before["last_ms"]:
                for name in ("last_ms", "last"):
                    made[name][-1] = life[name]
        else:
            made = np.append(made, life)
            if life["birth_ms"] <= before["birth_ms"]:
                after = min(int(life["first_ms"]), int(before["last_ms"]) + 1)
                made["birth_ms"][-1] = max(after, int(before["birth_ms"]) + 1)
        into.append(len(made) - 1)
    return made, into
