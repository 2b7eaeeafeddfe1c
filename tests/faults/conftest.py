"""Duration and load: a short form by default, ./scripts/test --slow tests/faults --faults full for the long one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from artimon.model.clock import SYSTEM_CLOCK


@dataclass(frozen=True, slots=True)
class Scale:
    """`kill_s`: how long processes are killed at random; `outage_s`: how long HDFS is away; `zookeeper_s`: ZooKeeper;
    `both_s`: two drivers at once; `rate`: samples a second that the load is to accept."""

    kill_s: float
    outage_s: float
    zookeeper_s: float
    both_s: float
    rate: float
    seed: int


_FORMS = {"short": (120.0, 60.0, 30.0, 20.0), "full": (1800.0, 600.0, 120.0, 60.0)}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--faults", choices=sorted(_FORMS), default="short", help="Form of the fault tests.")
    parser.addoption("--faults-rate", type=float, default=320_000.0, help="Samples a second of their load.")
    parser.addoption("--faults-seed", type=int, default=0, help="Repeats the random choices of a run.")


@pytest.fixture(scope="session")
def scale(request: pytest.FixtureRequest) -> Scale:
    """By the options; a run of other folders that comes by here takes the short form."""
    option = request.config.getoption
    form = _FORMS[str(option("--faults", "short"))]
    seed = int(option("--faults-seed", 0)) or SYSTEM_CLOCK.now_ms() % 1_000_000
    return Scale(*form, rate=float(option("--faults-rate", 320_000.0)), seed=seed)


@pytest.fixture(scope="module")
def load_options(scale: Scale) -> dict[str, str]:
    """Options of the stack."""
    return {"rate": str(scale.rate), "capacity": "600000"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("f")
