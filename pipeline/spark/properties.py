"""Spark's own settings from a file or a command line, in the form that spark-submit reads too."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

MAX_BYTES = 256 * 1024
_LINE = re.compile(r"(spark\.[^\s=:]+)\s*[=:\s]\s*(.*)")


class PropertiesError(ValueError):
    """A setting that Spark could not read. The text says where and what."""


def read_properties(path: Path) -> dict[str, str]:
    """Read settings from a file with lines `spark.key value` or `spark.key=value`; `#` begins a comment line. The same
    file fits `spark-submit --properties-file`. Raises PropertiesError."""
    try:
        text = path.read_bytes()[: MAX_BYTES + 1].decode()
    except (OSError, UnicodeDecodeError) as error:
        raise PropertiesError(f"{path} cannot be read: {error}") from error
    if len(text) > MAX_BYTES:
        raise PropertiesError(f"{path} has more than {MAX_BYTES} bytes: is this a file of Spark's settings?")
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        plain = line.strip()
        if plain and not plain.startswith(("#", "!")):
            key, value = _setting(plain, f"{path}:{number}")
            found[key] = value
    return found


def parse_conf(texts: Iterable[str]) -> dict[str, str]:
    """Parse the settings of a command line, `spark.key=value` each. Raises PropertiesError."""
    return dict(_setting(text.strip(), "--conf") for text in texts)


def _setting(text: str, where: str) -> tuple[str, str]:
    """
    >>> _setting("spark.executor.cores = 2", "here")
    ('spark.executor.cores', '2')
    """
    matched = _LINE.fullmatch(text)
    if matched is None:
        raise PropertiesError(f"{where}: {text!r} is not a Spark setting: write spark.some.key=value")
    return matched[1], matched[2].strip()
