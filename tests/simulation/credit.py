"""Runs in which the credits of collectors are scarce: a call often waits for the answer of another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from pipeline.collector import collector
from pipeline.delivery import dispatch
from pipeline.link import credits
from pipeline.link.credits import Shares
from tests.simulation.scenario import Scenario

LEAST = 1_000
"""Bytes; greater than any message but the records of an agent that sheds."""


@contextmanager
def scarce_credit() -> Iterator[None]:
    """Give each agent the credit of a few messages."""
    with (
        patch.object(credits, "LEAST", LEAST),
        patch.object(dispatch, "LEAST", LEAST),
        patch.object(collector, "Shares", lambda _total: Shares(LEAST)),
    ):
        yield


def is_suited(seed: int) -> bool:
    """True if no agent of the run sheds."""
    return "sheds" not in Scenario(seed).world.plan.specials
