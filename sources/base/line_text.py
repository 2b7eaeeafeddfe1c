"""Text of lines in drop-in files and Prometheus pages. Pure."""

from __future__ import annotations

from sources.base.source_errors import LineError

SPACE = b" \t\r"
MAX_NUMBER_BYTES = 400
"""Maximum length of a number in bytes; bounds the time to parse one."""
MAX_METADATA_BYTES = 1_024
"""Maximum length of a help text or unit in bytes; the rest is cut off."""


def decode_text(raw: bytes) -> str:
    """Decode a part of a line. Raises LineError if it is not valid UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise LineError(f"{printable(raw)} is not UTF-8 at byte {error.start + 1}") from None


def printable(raw: bytes) -> str:
    """Return bytes of a file or a page in printable form, at most 60 of them."""
    text = raw[:60].decode("utf-8", "backslashreplace")
    return repr(text + "…" if len(raw) > 60 else text)
