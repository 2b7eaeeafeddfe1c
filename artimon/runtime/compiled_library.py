"""Libraries of C functions: built once by the C compiler of the machine, stored beside their source, called by ctypes.

The stored library has a digest of its source, of the headers beside it and of the machine in its name. Arrays must be
contiguous and of the types that a function expects."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy.typing as npt

FLAGS = ("-O3", "-ffp-contract=off", "-fPIC", "-shared")
"""They keep the order of additions, and suit every machine of the architecture that shares the folder."""
BUILD_TIMEOUT_S = 60.0
INT, ADDRESS = ctypes.c_int64, ctypes.c_void_p
NOT_AVAILABLE = (OSError, subprocess.SubprocessError, AttributeError)
"""Errors of a machine without a compiler, or of a library for another one."""


def folder_of(source: Path) -> Path:
    """Return the folder of a library. It has the permissions of Python's compiled modules, which are code as well."""
    return source.parent / "__pycache__"


def build_library(source: Path, folder: Path) -> Path:
    """Return the library of this source and machine in `folder`, compiled if it is not there. Several processes may
    build at once. Raises OSError without a compiler or right to write, SubprocessError if the compiler fails."""
    digest = hashlib.sha256(" ".join((platform.machine(), sys.platform, *FLAGS)).encode())
    for file in (source, *sorted(source.parent.glob("*.h"))):
        digest.update(file.read_bytes())
    path = folder / f"{source.stem}.{digest.hexdigest()[:16]}.so"
    if path.exists():
        return path
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise FileNotFoundError("no C compiler (cc, gcc, clang) is on the path")
    folder.mkdir(exist_ok=True)
    handle, made = tempfile.mkstemp(".so", f"{source.stem}.", folder)
    os.close(handle)
    try:
        command = [compiler, *FLAGS, "-o", made, str(source), "-lm"]
        subprocess.run(command, check=True, capture_output=True, timeout=BUILD_TIMEOUT_S, stdin=subprocess.DEVNULL)
        os.chmod(made, 0o644)  # mkstemp makes files that only their owner reads
        os.replace(made, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(made)
    return path


def typed(function: Any, result: Any, *arguments: Any) -> Any:
    """Return a function of a library with its types."""
    function.restype, function.argtypes = result, arguments
    return function


def address(array: npt.NDArray[Any]) -> int:
    """Return the address of the first element. Raises ValueError unless the array is contiguous."""
    if not array.flags.c_contiguous:
        raise ValueError(f"array of strides {array.strides}: kernels take contiguous ones")
    first: int = array.__array_interface__["data"][0]
    return first
