"""Text of lines, in drop-in files and in Prometheus pages alike. Pure."""

from __future__ import annotations

from sources.base.errors import LineError

SPACE = b" \t\r"
MAX_NUMBER = 400
"""Bytes of a number: what is longer would take too long to understand."""
MAX_TOLD = 1_024
"""Bytes of a help text or a unit; what stands beyond is left out."""


def decoded(raw: bytes) -> str:
    """The text of a part of a line. LineError if it is no UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise LineError(f"{shown(raw)} is not UTF-8 at byte {error.start + 1}") from None


def shown(raw: bytes) -> str:
    """Bytes of a file or a page as they may be shown to anybody."""
    text = raw[:60].decode("utf-8", "backslashreplace")
    return repr(text + "…" if len(raw) > 60 else text)
