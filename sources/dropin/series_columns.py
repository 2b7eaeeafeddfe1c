"""Series of a reader by column: names, canonical texts and fingerprints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from artimon.model.fingerprint import fingerprint
from sources.state.relabel import RelabelRules
from sources.state.schema_binding import canonical_text, relabel

DROPPED = -1
"""Column of a series that a rule drops."""


class SeriesColumns:
    """`names`, `texts` and `prints` have one entry per column. `generation` changes when the columns are renumbered."""

    def __init__(self, automatic: Mapping[str, str], rules: RelabelRules | None) -> None:
        """`automatic`: labels of each series that has none of their names."""
        self._automatic, self._rules = automatic, rules
        self.generation = -1
        self.forget()

    def forget(self) -> None:
        self.generation += 1
        self._by_text: dict[str, int] = {}
        self.names: list[str] = []
        self.texts: list[str] = []
        self.prints: list[int] = []
        self.changed_by_rule: Counter[str] = Counter()
        """Series that each rule dropped or changed."""

    def column(self, name: str, labels: Mapping[str, str]) -> int:
        """Return the column of a series, new or not, or DROPPED. Raises LabelError."""
        if self._rules is None:
            text: str | None = canonical_text(name, labels, self._automatic)
        else:
            text = relabel(name, labels, self._automatic, self._rules, self.changed_by_rule)
        if text is None:
            return DROPPED
        at = self._by_text.get(text)
        if at is None:
            at = self._by_text[text] = len(self.texts)
            self.names.append(name)
            self.texts.append(text)
            self.prints.append(fingerprint(text))
        return at
