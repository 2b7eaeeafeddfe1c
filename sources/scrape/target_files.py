"""Targets of Prometheus jobs: those of the file of sources, and those of target files, which may change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from artimon.runtime.config_file import ConfigFileError
from sources.dropin.folder_files import Signature, signature_of
from sources.scrape.config_sections import JobTargets
from sources.scrape.sources_file import MAX_TARGETS, read_targets
from sources.targets.prometheus_target import PrometheusTarget, ScrapeJob

MAX_FILES = 1_000
END_AFTER_READS = 5
"""Consecutive checks without a file until its targets are dropped: some producers unlink before they rename."""


@dataclass(slots=True)
class _CachedFile:
    """Last valid content of a target file."""

    targets: tuple[PrometheusTarget, ...] = ()
    signature: Signature | None = None
    missing: int = 0


class TargetFiles:
    """Reader of target files. One thread at a time. An unreadable file keeps its last targets."""

    def __init__(self) -> None:
        self._cached: dict[tuple[str, str], _CachedFile] = {}

    def reload(self, pages: Iterable[JobTargets]) -> tuple[list[PrometheusTarget], list[str]]:
        """Return all targets, each instance of a job once, and the problems of the files."""
        found: dict[tuple[str, str], PrometheusTarget] = {}
        problems: list[str] = []
        used: set[tuple[str, str]] = set()
        for one in pages:
            for target in (*one.targets, *self._read_files(one, problems, used)):
                first = found.setdefault((target.job.name, target.instance), target)
                if first is not target:
                    problems.append(
                        f"{target}: instance {target.instance} of job {target.job.name} is {first.url} already"
                    )
        for key in self._cached.keys() - used:
            del self._cached[key]
        if len(found) > MAX_TARGETS:
            problems.append(f"{len(found):,} targets: only the first {MAX_TARGETS:,} are polled")
        return list(found.values())[:MAX_TARGETS], problems

    def _read_files(
        self, pages: JobTargets, problems: list[str], used: set[tuple[str, str]]
    ) -> Iterator[PrometheusTarget]:
        names = [name for pattern in pages.files for name in self._matching(pages.job, pattern, problems)]
        if len(names) > MAX_FILES:
            problems.append(f"job {pages.job.name}: {len(names):,} files: at most {MAX_FILES:,} are read")
        for name in names[:MAX_FILES]:
            used.add((pages.job.name, name))
            yield from self._read_file(pages.job, name, problems)

    def _matching(self, job: ScrapeJob, pattern: str, problems: list[str]) -> list[str]:
        """Return the names of the files that match now, and of known files that matched before."""
        path = Path(pattern)
        before = [name for known_job, name in self._cached if known_job == job.name and Path(name).match(pattern)]
        try:
            here = [str(one) for one in path.parent.glob(path.name)] if "*" in path.name else [pattern]
        except OSError as error:
            problems.append(f"job {job.name}: {path.parent}: {error.strerror}")
            return sorted(before)
        return sorted({*here, *before})

    def _read_file(self, job: ScrapeJob, name: str, problems: list[str]) -> tuple[PrometheusTarget, ...]:
        known = self._cached.setdefault((job.name, name), _CachedFile())
        path = Path(name)
        try:
            seen = signature_of(path.stat())
            known.missing = 0
            if seen != known.signature or any(target.job is not job for target in known.targets):
                known.targets = read_targets(path, job)
                known.signature = seen
        except FileNotFoundError:
            known.missing += 1
            problems.append(f"job {job.name}: {name} does not exist")
            if known.missing >= END_AFTER_READS:
                del self._cached[job.name, name]  # a pattern does not name it any more
                return ()
        except (ConfigFileError, OSError) as error:
            known.signature = None
            kept = f": its {len(known.targets)} previous targets stay in use" if known.targets else ""
            said = str(error).replace("\n", "; ")
            problems.append(f"job {job.name}: {said}{kept}")
        return known.targets
