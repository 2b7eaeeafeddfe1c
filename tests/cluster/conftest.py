"""Options of the cluster's run: ./scripts/test --cluster [--minutes N] [--hold N] [--kinds A,B] [--before COMMIT]
[--faults-seed N]."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--minutes", type=float, default=15.0, help="Duration of the faults of the cluster's test.")
    parser.addoption("--hold", type=float, default=30.0, help="Seconds for which a host is cut off, away or stopped.")
    parser.addoption("--kinds", default="upgrade,cut,kill,stop,disk,node", help="Kinds of faults of the cluster.")
    parser.addoption("--before", default="", help="Commit of the version from which the upgrade of the cluster begins.")
