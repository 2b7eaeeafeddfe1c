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
        said = done.stdout[-500:] + done.stderr[-4000:]
        pytest.fail(f"ended with {done.returncode} at case {number}: {again(seed, number)}\n{said}")
    assert number > 100


def test_new_seeds(tmp_path: Path) -> None:
    fuzz(secrets.token_hex(4), 5.0, tmp_path)


LIVES_ON = """
import pyarrow as pa
from tests.security.fuzzing import pool_of

kept = [pa.allocate_buffer(1000, memory_pool=pool_of(f"pool {n}")) for n in range(50)]
pool_of.cache_clear()  # as at the end of the interpreter
junk = [bytearray(b"U" * size) for size in range(16, 400, 8) for _ in range(50)]
del kept
"""


def test_a_buffer_that_outlives_its_pool_does_not_end_the_process() -> None:
    """Seed bcc7fb68 died so with signal 11 after its last case, 276754, which is a whole message."""
    done = subprocess.run([sys.executable, "-c", LIVES_ON], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run_case("bcc7fb68", 276754, "image")


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
