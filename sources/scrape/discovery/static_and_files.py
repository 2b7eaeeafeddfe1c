"""Targets that the configuration names, and those of files in the format of Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from artimon.runtime.config_file import ConfigFileError, read_config
from sources.dropin.folder_files import Signature, signature_of
from sources.scrape.discovery.discovery import Discovery, DiscoveryConfig, Groups, RefreshedDiscovery
from sources.scrape.discovery.target_group import DiscoveredGroup, group_of

MAX_FILES = 1_000
CHECK_S = 5.0
"""Seconds between two checks of the files: Prometheus is told of changes at once."""


class StaticTargets(Discovery):
    """Groups of the configuration."""

    def __init__(self, groups: tuple[DiscoveredGroup, ...], changed: Callable[[], None]) -> None:
        super().__init__(changed)
        self._named = groups

    async def run(self) -> None:
        self.publish({str(at): group for at, group in enumerate(self._named)})

    def __str__(self) -> str:
        return "static targets"


@dataclass(frozen=True, slots=True)
class StaticConfig(DiscoveryConfig):
    """`static_configs`, all of a job."""

    groups: tuple[DiscoveredGroup, ...]

    def make(self, changed: Callable[[], None]) -> Discovery:
        return StaticTargets(self.groups, changed)


class FileDiscovery(RefreshedDiscovery):
    """Groups of files. A file that is invalid keeps its last groups; one that is gone has none."""

    def __init__(self, config: FileConfig, changed: Callable[[], None]) -> None:
        super().__init__(changed)
        self._patterns, self.refresh_s = config.files, CHECK_S
        self._read: dict[str, tuple[Signature, tuple[DiscoveredGroup, ...]]] = {}

    async def refresh(self) -> Groups:
        problems = await asyncio.to_thread(self._read_all)
        found = {f"{name}:{at}": group for name, (_, groups) in self._read.items() for at, group in enumerate(groups)}
        if problems:
            self.publish(found)
            raise ValueError("; ".join(problems[:5]))
        return found

    def _read_all(self) -> list[str]:
        problems: list[str] = []
        names = sorted({str(path) for pattern in self._patterns for path in pattern.parent.glob(pattern.name)})
        if len(names) > MAX_FILES:
            problems.append(f"{len(names):,} files: at most {MAX_FILES:,} are read")
        for name in names[:MAX_FILES]:
            try:
                self._read_file(Path(name))
            except (ConfigFileError, OSError, ValueError) as error:
                problems.append(f"{error!s}: {name} keeps its last targets".replace("\n", "; "))
        for gone in self._read.keys() - set(names):
            del self._read[gone]
        return problems

    def _read_file(self, path: Path) -> None:
        seen = signature_of(path.stat())
        if (known := self._read.get(str(path))) is not None and known[0] == seen:
            return
        file = read_config(path, form="json" if path.suffix == ".json" else "yaml")
        if not isinstance(file.data, list):
            raise file.error("want a list of target groups")
        groups = []
        for at, one in enumerate(file.data):
            try:
                group = group_of(one)
            except ValueError as error:
                raise file.error(str(error), at) from None
            groups.append(DiscoveredGroup(group.targets, {**group.labels, "__meta_filepath": str(path)}))
        self._read[str(path)] = seen, tuple(groups)

    def __str__(self) -> str:
        return f"files {', '.join(map(str, self._patterns))}"


@dataclass(frozen=True, slots=True)
class FileConfig(DiscoveryConfig):
    """One of `file_sd_configs`."""

    files: tuple[Path, ...]

    def make(self, changed: Callable[[], None]) -> Discovery:
        return FileDiscovery(self, changed)
