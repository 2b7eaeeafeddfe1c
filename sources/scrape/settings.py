"""Settings of sources in a YAML file: times, sizes, labels, files that give access."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from artimon.model.labels import LabelError, validate_labels
from sources.base.errors import SourcesFileError
from sources.base.yaml_nodes import NodeReader
from sources.targets.credentials import Access

MAX_BYTES = 64 << 20
_DURATION = re.compile(r"([0-9]{1,6})(ms|s|m|h)")
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_SIZE = re.compile(r"([0-9]{1,9})(|KiB|MiB)")
_SIZES = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20}


class SettingsReader(NodeReader):
    """Each method takes the node that it is about; paths are relative to `folder`."""

    def __init__(self, shown: str, folder: Path) -> None:
        super().__init__(shown, SourcesFileError)
        self._folder = folder

    def _limited(self, node: yaml.Node | None, most: int, what: str) -> list[yaml.Node]:
        nodes = self._list(node)
        if len(nodes) > most:
            self._fail(nodes[most], f"more than {most} {what}")
        return nodes

    def _labels(self, node: yaml.Node | None) -> dict[str, str]:
        labels = {self._text(key): self._text(value) for key, value in self._pairs(node)} if node is not None else {}
        try:
            validate_labels(labels)
        except LabelError as error:
            if node is not None:
                self._fail(node, str(error))
        return labels

    def _access(self, keys: Mapping[str, yaml.Node]) -> Access:
        def file(name: str) -> Path | None:
            return self._folder / self._text(keys[name]) if name in keys else None

        def text(name: str) -> str:
            return self._text(keys[name]) if name in keys else ""

        if "key" in keys and "cert" not in keys:
            self._fail(keys["key"], "a `key:` without its `cert:`")
        if ("username" in keys) != ("password_file" in keys):
            self._fail(keys.get("username") or keys["password_file"], "`username:` and `password_file:` go together")
        return Access(
            file("ca"), file("cert"), file("key"), text("server_name"), file("bearer_token_file"), text("username"),
            file("password_file"),
        )  # fmt: skip

    def _path(self, node: yaml.Node | None, default: str) -> str:
        text = self._text(node) if node is not None else default
        if node is not None and not text.startswith("/"):
            self._fail(node, f"{text!r}: a path begins with /")
        return text

    def _seconds(self, node: yaml.Node) -> float:
        found = _DURATION.fullmatch(self._text(node))
        if found is None or not 100 <= (ms := int(found[1]) * _UNITS_MS[found[2]]) <= 86_400_000:
            self._fail(node, f"{self._text(node)!r}: want a time such as 500ms, 10s, 5m or 1h, 100ms to 24h")
        return ms / 1000

    def _size(self, node: yaml.Node | None, default: int) -> int:
        if node is None:
            return default
        found = _SIZE.fullmatch(self._text(node))
        if found is None or not 0 < (size := int(found[1]) * _SIZES[found[2]]) <= MAX_BYTES:
            self._fail(node, f"{self._text(node)!r}: want bytes such as 1MiB, at most {MAX_BYTES >> 20}MiB")
        return size

    def _at_most(self, node: yaml.Node | None, most: int, default: int) -> int:
        number = default if node is None else self._positive(node)
        if node is not None and number > most:
            self._fail(node, f"{number}: at most {most:,}")
        return number
