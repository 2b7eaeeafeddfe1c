"""Snappy blocks, whose size is checked before they are decompressed."""

from __future__ import annotations

import cramjam


class SnappyError(ValueError):
    """A body is not a snappy block, or is too large."""


def decompress_block(body: bytes, most: int) -> bytes:
    """Decompress a block of at most `most` bytes. Raises SnappyError, before it is decompressed if it is too large."""
    try:
        size = cramjam.snappy.decompress_raw_len(body)
        if size > most:
            raise SnappyError(f"the body has {size:,} bytes decompressed, at most {most:,}: send less at once")
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as problem:
        raise SnappyError(f"the body is not compressed by snappy (block format): {problem}") from None


def compress_block(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))
