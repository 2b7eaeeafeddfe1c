"""Compare the figures of a run, relative to the limits of the machine, with those of the page.

A figure that is worse by more than 10 % than the committed one is an error. Without FILE the benchmarks run first.

./scripts/bench-check [FILE] [--only pipeline,query] [--committed docs/benchmarks.jsonl]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import all as whole
from benchmarks.limits import LIMIT
from benchmarks.suite.results import Record, ResultsError, failed, read

COMMITTED = Path(__file__).parent.parent / "docs" / "benchmarks.jsonl"
WORSE = 0.10


def shares(records: Sequence[Record]) -> dict[str, float]:
    """Return the ratio to the limit of each figure that has one."""
    return {
        one["name"].removeprefix(LIMIT): float(one["ratio"])
        for one in records
        if one["name"].startswith(LIMIT) and not failed(one) and one.get("ratio")
    }


def compare(now: Mapping[str, float], committed: Mapping[str, float]) -> list[str]:
    """Return a line for each figure that is worse than the committed one."""
    return [
        f"{name}: {now[name]:.3g} of its limit, {before:.3g} before: {1 - now[name] / before:.0%} worse"
        for name, before in committed.items()
        if name in now and now[name] < before * (1 - WORSE)
    ]


def main(args: Sequence[str]) -> int:
    """Run the command line; the module describes it."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="bench-check", description=__doc__, formatter_class=form)
    parser.add_argument("file", type=Path, nargs="?", help="results of `artimon bench all --json FILE`")
    parser.add_argument("--only", default="", help="benchmarks to run, separated by commas")
    parser.add_argument("--committed", type=Path, default=COMMITTED)
    options = parser.parse_args(args)
    try:
        before = shares(read(options.committed))
        now = shares(read(options.file) if options.file else _measured(options.only))
    except (OSError, ResultsError) as error:
        print(f"bench-check: {error}", file=sys.stderr)
        return 2
    common = before.keys() & now.keys()
    if not common:
        print(f"bench-check: no line of {options.committed} and of this run has a limit", file=sys.stderr)
        return 2
    worse = compare(now, before)
    for text in worse:
        print(text)
    print(f"{len(common)} figures compared, {len(worse)} are worse by more than {WORSE:.0%}")
    return 1 if worse else 0


def _measured(only: str) -> list[Record]:
    """Run benchmarks and return their lines."""
    with tempfile.TemporaryDirectory(prefix="artimon-check-") as folder:
        file = Path(folder) / "results.jsonl"
        whole.main([str(file), *(["--only", only] if only else [])])
        return read(file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
