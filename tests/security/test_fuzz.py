"""Mutated messages against all decoders, in a process with little memory: tests/security/fuzzing.py."""

from __future__ import annotations

import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.security.fuzzing import ROOT, again, run_case, targets


def fuzz(seed: str, seconds: float, folder: Path) -> None:
    """Cases of a seed for so long. Fails with the command that repeats the case that broke something."""
    print(f"python -m tests.security.fuzzing --seed {seed} --seconds {seconds:.0f}")
    progress = folder / "progress"
    command = [sys.executable, "-m", "tests.security.fuzzing", "--seed", seed, "--seconds", str(seconds)]
    done = subprocess.run([*command, "--progress", str(progress)], cwd=ROOT, capture_output=True, text=True)
    number = int(progress.read_text() or 0) if progress.exists() else 0
    if done.returncode:
        pytest.fail(f"ended with {done.returncode} at case {number}: {again(seed, number)}\n{done.stderr[-4000:]}")
    assert number > 100


def test_new_seeds(tmp_path: Path) -> None:
    fuzz(secrets.token_hex(4), 30.0, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_new_seeds_for_ten_minutes(tmp_path: Path) -> None:
    fuzz(secrets.token_hex(4), 600.0, tmp_path)


@pytest.mark.parametrize("name", sorted(targets()))
def test_each_decoder_takes_what_is_whole_and_refuses_what_is_not(name: str) -> None:
    """Fixed cases, and at least one sample that is taken as it is."""
    target = targets()[name]
    taken = 0
    for sample in target.samples:
        try:
            target.decode(sample)
            taken += 1
        except target.refusals:
            pass
    assert taken
    for number in range(20):
        run_case("fixed", number, name)
