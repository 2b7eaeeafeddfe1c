"""A disk of a few MiB, to be filled. Only root can mount one; tests that need one skip elsewhere."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, mib: int) -> Iterator[Path]:
    """A file system in memory with room for so much."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "artimon-test", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode:
        pytest.skip(f"mounting does not work here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False, timeout=20)
