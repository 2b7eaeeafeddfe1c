"""Lines of an input file, plain or compressed by gzip, in blocks."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from sources.base.source_errors import FileRefusedError

BLOCK_BYTES = 4 << 20
MAX_LINE_BYTES = 256 << 20
"""Limit of a line: VictoriaMetrics writes all samples of a series into one."""


def open_input(file: Path) -> IO[bytes]:
    """Open a file; one whose name ends in .gz is decompressed. Raises OSError."""
    return cast("IO[bytes]", gzip.open(file, "rb")) if file.suffix == ".gz" else file.open("rb")


def text_blocks(file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the number of the first line, and whole lines without the last newline, of one block after another. Raises
    FileRefusedError for a line beyond the limit, OSError, EOFError."""
    number, held = 1, b""
    with open_input(file) as stream:
        while block := stream.read(BLOCK_BYTES):
            head, newline, tail = block.rpartition(b"\n")
            if not newline:
                held += block
                if len(held) > MAX_LINE_BYTES:
                    raise FileRefusedError("line", f"{file}:{number}: longer than {MAX_LINE_BYTES >> 20} MiB")
                continue
            lines = held + head
            held = tail
            yield number, lines
            number += lines.count(b"\n") + 1
    if held:
        yield number, held


def line_blocks(file: Path) -> Iterator[tuple[int, list[bytes]]]:
    """As `text_blocks`, as lists of lines."""
    return ((number, block.split(b"\n")) for number, block in text_blocks(file))
