"""Runs in which the credits of collectors are scarce: a call often waits for the answer of another one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from pipeline.collector import collector
from pipeline.delivery import send_planner as dispatch
from pipeline.link import credits
from pipeline.link.credits import CollectorCredits
from tests.simulation.plan import draw
from tests.simulation.run import Outcome, run_seed

LEAST_BYTES = 1_000
"""Bytes; greater than any message but the records of an agent that sheds."""


@contextmanager
def scarce_credit() -> Iterator[None]:
    """Give each agent the credit of a few messages."""
    with (
        patch.object(credits, "MIN_CREDIT_BYTES", LEAST_BYTES),
        patch.object(dispatch, "MIN_CREDIT_BYTES", LEAST_BYTES),
        patch.object(collector, "CollectorCredits", lambda _total: CollectorCredits(LEAST_BYTES)),
    ):
        yield


def run_scarce(first: int, seeds: int) -> list[Outcome]:
    """Outcomes of the seeds [first, first + seeds) with scarce credits, without those in which an agent sheds."""
    with scarce_credit():
        return [run_seed(seed) for seed in range(first, first + seeds) if not _sheds(seed)]


def _sheds(seed: int) -> bool:
    """True if an agent of the run sheds: World draws its plan first."""
    return "sheds" in draw(random.Random(seed)).specials
