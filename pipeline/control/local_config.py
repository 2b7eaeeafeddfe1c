"""Configuration from a local file, for agents without a central one. It is read again when it changes."""

from __future__ import annotations

import logging
from pathlib import Path

from pipeline.control.config_document import MAX_BYTES, ConfigError, canonical, parse_document, read_text
from pipeline.control.rollout import Layer, VersionId

log = logging.getLogger(__name__)


class LocalConfig:
    """One TOML or JSON file. While it is absent or unreadable, its last valid content stays in force."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last_stat: tuple[int, int, int] | None = None
        self._layer: Layer | None = None
        self.problem = ""

    def read(self) -> Layer | None:
        """Return the layer of the file. If it cannot be used: the former one or None, and `problem` says why."""
        try:
            stat = self._path.stat()
            seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if seen != self._last_stat:
                self._layer = self._parse()
            self._last_stat, self.problem = seen, ""
        except (OSError, ConfigError) as error:
            if self.problem != str(error):
                self.problem = str(error)
                log.error("configuration file: %s", error)
        return self._layer

    def _parse(self) -> Layer:
        with self._path.open("rb") as file:
            data = file.read(2 * MAX_BYTES + 1)
        try:
            found = read_text(data.decode(), str(self._path))
        except UnicodeDecodeError as error:
            raise ConfigError(f"{self._path} is not UTF-8: {error}") from None
        parse_document(found)
        return Layer(VersionId("file", "file", 0), canonical(found))
