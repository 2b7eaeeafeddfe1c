"""Fetch the public dashboards of Grafana that tests/dashboards compares with Prometheus into the cache folder.

python -m scripts.grafana_dashboards [--origin URL]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from artimon.runtime import settings

LIST = Path(__file__).parents[1] / "tests" / "dashboards" / "public.txt"
ORIGIN = "https://github.com"
FETCH_S = 600.0


@dataclass(frozen=True, slots=True)
class PublicDashboard:
    """File of a repository at a commit."""

    repository: str
    commit: str
    path: str

    @property
    def file(self) -> str:
        """Name in the cache folder, with the commit: another commit is another file."""
        return f"{self.repository.replace('/', '+')}+{self.commit[:12]}+{self.path.rpartition('/')[2]}"


def listed() -> list[PublicDashboard]:
    """Return the dashboards of the list."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return [PublicDashboard(*line.split(" ")) for line in lines if line and not line.startswith("#")]


def cache_folder() -> Path:
    """Return the folder of the fetched files."""
    return settings.load().cache / "grafana-dashboards"


def fetch(origin: str, wanted: Sequence[PublicDashboard], folder: Path) -> None:
    """Write the files that the folder lacks. `origin`: URL or folder with OWNER/NAME. Raises CalledProcessError."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [one for one in wanted if not (folder / one.file).is_file()]
    for repository, commit in sorted({(one.repository, one.commit) for one in missing}):
        with tempfile.TemporaryDirectory() as clone:
            _git(clone, "init", "--quiet")
            _git(clone, "fetch", "--quiet", "--depth", "1", f"{origin}/{repository}", commit)
            for one in missing:
                if (one.repository, one.commit) == (repository, commit):
                    text = _git(clone, "show", f"{commit}:{one.path}")
                    (folder / one.file).write_bytes(text)


def _git(clone: str, *arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", clone, *arguments], stdout=subprocess.PIPE, check=True, timeout=FETCH_S)
    return done.stdout


def main(args: Sequence[str]) -> int:
    """Run the command line; the module describes it."""
    parser = argparse.ArgumentParser(prog="python -m scripts.grafana_dashboards", description=__doc__)
    parser.add_argument("--origin", default=ORIGIN, help="URL or folder of the repositories")
    options = parser.parse_args(args)
    try:
        fetch(options.origin, listed(), cache_folder())
    except (OSError, subprocess.SubprocessError) as problem:
        print(f"grafana_dashboards: {problem}", file=sys.stderr)
        return 1
    print(cache_folder())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
