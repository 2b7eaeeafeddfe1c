"""Settings of PromQL that hold for all queries of a process."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated

from artimon.runtime.process_options import Option
from artimon.runtime.settings import Settings


@dataclass(frozen=True, slots=True)
class PromqlSettings:
    """Differences from PromQL that a query gets without asking for them."""

    exact_increase: Annotated[
        bool,
        Option(
            "increase and rate of PromQL count from the starts of processes, without extrapolation"
            " (ARTIMON_PROMQL_EXACT_INCREASE).",
            "--promql-exact-increase/--no-promql-exact-increase",
            default_of=attrgetter("promql_exact_increase"),
        ),
    ] = False
    similar_names: Annotated[
        bool,
        Option(
            "A name in PromQL finds the names that differ in dots and underscores only (ARTIMON_PROMQL_SIMILAR_NAMES).",
            "--promql-similar-names/--no-promql-similar-names",
            default_of=attrgetter("promql_similar_names"),
        ),
    ] = False

    @classmethod
    def from_environment(cls, settings: Settings) -> PromqlSettings:
        """Return those of a process without options of its own."""
        return cls(settings.promql_exact_increase, settings.promql_similar_names)
