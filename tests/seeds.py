"""Seed of a test run. Every run draws a new one, prints it, and prints the command that repeats it (`--seed N`).

The order of the tests (pytest-randomly), the examples of Hypothesis and `drawn` depend on it. Parallel workers share
it. Constant seeds stay beside it: `fixed_and_drawn`."""

from __future__ import annotations

import os
import random
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import xxhash
from hypothesis import HealthCheck, settings

VARIABLE = "ARTIMON_SEED"
SEED_BITS = 32

# The duration of an example depends on the load of the machine. A test has a timeout of its own.
# `derandomize` is named because Hypothesis sets it where CI is set.
settings.register_profile(
    "artimon", deadline=None, derandomize=False, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("artimon")


def run_seed() -> int:
    """Seed of this run; 0 outside pytest."""
    return int(os.environ.get(VARIABLE) or 0)


def drawn(name: str) -> int:
    """Seed that this run draws for `name`, the same in each process of the run."""
    return xxhash.xxh3_64_intdigest(f"{run_seed()} {name}".encode()) >> (64 - SEED_BITS)


def fixed_and_drawn(fixed: Iterable[int], name: str, draws: int = 1) -> list[Any]:
    """Parameters of a test over seeds: the fixed ones, then `draws` new ones, whose ids do not differ between runs."""
    new = [pytest.param(drawn(f"{name} {n}"), id=f"drawn{n}") for n in range(draws)]
    return [*fixed, *new]


def pytest_addoption(parser: pytest.Parser) -> None:
    text = f"Repeats the run that printed this seed. Default: {VARIABLE}, else a new one."
    parser.addoption("--seed", type=int, default=None, help=text)


@pytest.hookimpl(tryfirst=True)  # pytest-randomly and Hypothesis read their options when they are configured
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed before any test module is imported. Workers get it with the options of the run."""
    option = config.option
    if option.seed is None:
        option.seed = int(os.environ.get(VARIABLE) or random.SystemRandom().getrandbits(SEED_BITS))
    os.environ[VARIABLE] = str(option.seed)
    if getattr(option, "randomly_seed", None) == "default":
        option.randomly_seed = option.seed
    if option.hypothesis_seed is None:
        option.hypothesis_seed = str(option.seed)


def repeat_command(config: pytest.Config) -> str:
    """Command line of this run with its seed."""
    given = iter(config.invocation_params.args)
    kept: list[str] = []
    for word in map(str, given):
        if word == "--seed":
            next(given, None)
        elif not word.startswith("--seed="):
            kept.append(word)
    program, seed = os.path.relpath(Path(sys.executable).with_name("pytest")), str(config.option.seed)
    return f"seed {seed}; to repeat: {shlex.join([program, '--seed', seed, *kept])}"


def pytest_report_header(config: pytest.Config) -> str:
    return repeat_command(config)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the seed at the end too, since the beginning of a long log may be gone. Keep it for a second run."""
    if (cache := getattr(config, "cache", None)) is not None:  # absent with -p no:cacheprovider
        cache.set("artimon/seed", config.option.seed)
    terminalreporter.line(repeat_command(config))
