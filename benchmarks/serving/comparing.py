"""Comparison of our answer with that of a peer: same series, same values at every step."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Key = tuple[tuple[str, str], ...]
Floats = npt.NDArray[np.float64]


class WrongAnswer(RuntimeError):
    """Our answer differs from that of a peer."""


def compare(name: str, peer: str, ours: dict[str, Any], theirs: dict[str, Any], within: float) -> int:
    """Compare all series at all steps; return the number of values. Raises WrongAnswer unless both have the same series
    and values at the same steps, and values differ by `within` at most, relative to the peer's."""
    grid = ours["grid"]
    ends = range(grid["start_ms"] + grid["step_ms"], grid["end_ms"] + 1, grid["step_ms"])
    mine, rest = _our_values(ours, len(ends)), _their_values(theirs, {end // 1000: i for i, end in enumerate(ends)})
    if mine.keys() != rest.keys():
        odd = sorted(mine.keys() ^ rest.keys())[0]
        raise WrongAnswer(f"{name}: {len(mine)} series, {peer} has {len(rest)}; only one has {dict(odd)}")
    if not mine:
        raise WrongAnswer(f"{name}: no series in either answer")
    a, b = (np.array([side[key] for key in mine]) for side in (mine, rest))
    if (np.isnan(a) != np.isnan(b)).any():
        row, at = np.argwhere(np.isnan(a) != np.isnan(b))[0]
        raise WrongAnswer(f"{name}: {a[row, at]} at step {at}, {peer} has {b[row, at]}: {dict(list(mine)[row])}")
    off = np.abs(a - b) > within * np.abs(b)
    if off.any():
        row, at = np.argwhere(off)[0]
        raise WrongAnswer(
            f"{name}: {int(off.sum())} of {off.size} values differ from those of {peer} by more than {within:g}: first"
            f" {a[row, at]} at step {at} of {len(ends)}, {peer} has {b[row, at]}"
        )
    return int((~np.isnan(a)).sum())


def _our_values(answer: dict[str, Any], steps: int) -> dict[Key, Floats]:
    found = {}
    for one in answer["series"]:
        values = np.array([np.nan if value is None else value for value in one["values"]], np.float64)
        if len(values) != steps:
            raise WrongAnswer(f"an answer with {len(values)} values of {steps} steps")
        if not np.isnan(values).all():
            found[_key(one["labels"])] = values
    return found


def _their_values(answer: dict[str, Any], steps: dict[int, int]) -> dict[Key, Floats]:
    found = {}
    for one in answer["data"]["result"]:
        values = np.full(len(steps), np.nan)
        for time_s, text in one["values"]:
            values[steps[int(time_s)]] = float(text)
        found[_key(one["metric"])] = values
    return found


def _key(labels: dict[str, str]) -> Key:
    return tuple(sorted((name, value) for name, value in labels.items() if name != "__name__"))
