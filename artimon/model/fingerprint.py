"""Fingerprint of a series: xxh3-64 of its canonical text, an unsigned 64-bit integer."""

from __future__ import annotations

import xxhash


def fingerprint(canonical_text: str) -> int:
    """Return xxh3-64 (seed 0) of the UTF-8 of `canonical_text` as an unsigned 64-bit integer."""
    return int(xxhash.xxh3_64_intdigest(canonical_text.encode()))


def signed(unsigned: int) -> int:
    """Return the same 64 bits as int64, for tables without unsigned types (Delta)."""
    return unsigned - 2**64 if unsigned >= 2**63 else unsigned


def unsigned(signed_value: int) -> int:
    """Inverse of `signed`."""
    return signed_value + 2**64 if signed_value < 0 else signed_value
