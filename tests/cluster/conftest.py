"""Options of the cluster's run: ./scripts/test --cluster [--minutes N] [--hold N] [--kinds A,B] [--before COMMIT]
[--faults-seed N]."""

from __future__ import annotations

import pytest

from tests.cluster.cluster_faults import HOLD_S, KINDS

BEFORE = "26725a3f"
"""Version from which the upgrade begins, if the repository has its history."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--minutes", type=float, default=15.0, help="Duration of the faults of the cluster's test.")
    parser.addoption("--hold", type=float, default=HOLD_S, help="Seconds for which a host is cut off, away or stopped.")
    parser.addoption("--kinds", default=",".join(KINDS), help="Kinds of faults of the cluster.")
    parser.addoption("--before", default=BEFORE, help='Commit where the upgrade of the cluster begins; "": a restart.')
