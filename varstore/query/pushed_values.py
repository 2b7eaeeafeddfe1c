"""Values of a part, window by window, for reducers that need all members of a class at once."""

from __future__ import annotations

import numpy as np

from artimon.compute.cells import Floats
from artimon.compute.ranks import BEST, Best, Block
from artimon.compute.reducing import Reducing
from artimon.compute.rolling import Shown
from varstore.query.parts import Part
from varstore.query.pushed_rows import Mask, Seen


class PartValues(Seen):
    """Values that a reducer gathers, or members that it chooses, over all windows of a part."""

    def __init__(self, part: Part, reducing: Reducing) -> None:
        super().__init__(part)
        self._reducing, members, outputs = reducing, len(part.order), reducing.windows.outputs
        self._values: Floats | None = None
        self._present: Mask | None = None
        self._best: list[Best] = []
        if reducing.reducer in BEST:
            self._best = [
                Best(reducing.reducer, reducing.reducer_args, group.starts, int(group.sizes.sum()), group.double)
                for group in part.groups
            ]
        else:
            self._values = np.full((outputs, members), np.nan)

    def add(self, output: int, values: Shown) -> None:
        """Add the values of one window, given for all slots read of the part."""
        cells, present, guesses = values
        if present is False:
            if self._values is not None:
                self._mask()[output] = False
            return
        self.count_guesses(guesses, present)
        order = self._part.order
        arranged, here = cells.take(order), None if isinstance(present, bool) else present.take(order)
        if self._values is None:
            for group, best in zip(self._part.groups, self._best, strict=True):
                best.add(arranged[group.rows], None if here is None else here[group.rows])
            return
        row = self._values[output]
        for group in self._part.groups:
            mine = arranged[group.rows]
            row[group.rows] = mine.view(np.float64) if group.double else mine
        if here is not None:
            row[~here] = np.nan
            self._mask()[output] = here

    def _mask(self) -> Mask:
        if self._present is None:
            self._present = np.ones((self._reducing.windows.outputs, len(self._part.order)), np.bool_)
        return self._present

    def into(self, reducing: Reducing) -> None:
        """Add members, and gathered values or chosen members, to the result."""
        part, seen = self._part, self.seen().take(self._part.order)
        codes = np.zeros(len(part.order), np.int64)
        for group in part.groups:
            codes[group.rows] = np.repeat(group.codes, group.sizes)
        reducing.total.members[:] += np.bincount(codes[seen], minlength=reducing.classes)
        if self._values is not None:
            reducing.blocks.append(Block(codes, self._values, self._present))
            return
        chosen = [group.rows.start + np.flatnonzero(b.done()) for group, b in zip(part.groups, self._best, strict=True)]
        places = part.order[np.concatenate(chosen)] if chosen else part.order[:0]
        reducing.best.append(part.rows.start + np.searchsorted(part.places, places))
