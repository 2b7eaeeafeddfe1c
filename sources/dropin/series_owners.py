"""Owners of series: each series belongs to one drop-in file. Samples of two files would be counted twice and mixed."""

from __future__ import annotations

from collections.abc import Iterable

from artimon.model.values import ValueType, double_to_cell
from sources.state.series_memory import SourceSeries

META = "file"
"""Key in the meta of a source: the name of its file."""
_SPARE = 1_000


class SeriesOwners:
    """Fingerprint -> the source that delivered the series last; it owns the series while the series is live there.

    Event loop only. Bounded: `trim` removes series that no source has a row for. Invariant: a series is live in at most
    one source."""

    def __init__(self) -> None:
        self._by_print: dict[int, SourceSeries] = {}

    def __len__(self) -> int:
        return len(self._by_print)

    def owner_of(self, print_: int, series: SourceSeries) -> str:
        """Return the file that owns the series, "" if it is the file of `series` or there is none."""
        held = self._by_print.get(print_, series)
        if held is series:
            return ""
        row = held.rows.by_fingerprint.get(print_)
        return str(held.meta.get(META, held.name)) if row is not None and held.rows.state["live"][row] else ""

    def claim(self, prints: Iterable[int], series: SourceSeries) -> None:
        """Make `series` the owner of these fingerprints: the log has samples of them from it."""
        self._by_print.update(dict.fromkeys(prints, series))

    def inherit(self, print_: int, series: SourceSeries) -> None:
        """Copy the state of the previous owner's row to that of `series`: no sample counts twice, start times stay."""
        held = self._by_print.get(print_, series)
        old = None if held is series else held.rows.by_fingerprint.get(print_)
        if old is None:
            return
        row, state, before = series.rows.by_fingerprint[print_], series.rows.state, held.rows.state
        if before["last_ms"][old] <= state["last_ms"][row]:
            return
        state["last_ms"][row], state["birth_ms"][row] = before["last_ms"][old], before["birth_ms"][old]
        if before["type"][old] == state["type"][row]:
            state["cell"][row] = before["cell"][old]
        elif (before["type"][old], state["type"][row]) == (ValueType.INTEGER, ValueType.DOUBLE):
            state["cell"][row] = double_to_cell(float(int(before["cell"][old])))

    def add(self, series: SourceSeries) -> None:
        """Add the series of a source that are new here. A series live in two sources goes to the one with the newer
        sample."""
        state = series.rows.state
        prints, live, last = (state[name].tolist() for name in ("fingerprint", "live", "last_ms"))
        for row, print_ in enumerate(prints):
            held = self._by_print.get(print_)
            if held is None:
                self._by_print[print_] = series
            if held is None or held is series:
                continue
            old = held.rows.by_fingerprint.get(print_)
            if old is None:
                self._by_print[print_] = series
                continue
            theirs = (bool(held.rows.state["live"][old]), int(held.rows.state["last_ms"][old]))
            loser, lost = (held, old) if (live[row], last[row]) > theirs else (series, row)
            loser.rows.state["live"][lost] = False  # without an end marker: it continues in the other source
            if loser is held:
                self._by_print[print_] = series

    def trim(self, sources: Iterable[SourceSeries]) -> None:
        """Remove fingerprints that no source has a row for, once they are about half of the entries."""
        if len(self._by_print) <= 2 * sum(series.rows.size for series in sources) + _SPARE:
            return
        self._by_print = {
            print_: series for print_, series in self._by_print.items() if print_ in series.rows.by_fingerprint
        }
