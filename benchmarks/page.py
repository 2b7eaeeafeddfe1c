"""Make the page of figures from the results of runs and a template without figures.

artimon bench page FILE > docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import xxhash

from benchmarks.limits import LIMIT
from benchmarks.suite.aims import AIMS
from benchmarks.suite.changes import CHANGES, COMMIT, MEASURED, Change
from benchmarks.suite.plan import PLAN
from benchmarks.suite.results import RUN, Record, ResultsError, failed, read

PEER = "peer."
TEMPLATE = Path(__file__).parent / "suite" / "page.md"
FORMS = {
    "usual": "usual: less than an hour on two quiet cores",
    "small": "**small: a trial of the run with small sizes; its figures compare with nothing**",
    "long": "long: more than an hour",
}
SAME = 0.05
"""Greatest relative difference of figures that count as the same."""
PLACE = re.compile(r"^\{\{(\w+)(?:: (\w+))?\}\}$", re.M)


def page(records: Sequence[Record], template: str) -> str:
    """Return the page as Markdown. Raises ResultsError unless the first record is the machine line."""
    if not records or records[0]["name"] != "machine":
        raise ResultsError("the first line of the results is not a machine line")
    records = _in_order(records)
    parts: dict[str, Callable[[str], str]] = {
        "machine": lambda _: _machine(records[0]),
        "ratios": lambda _: _ratios(records),
        "runs": lambda _: _runs(records),
        "failures": lambda _: _failures(records),
        "changes": lambda _: _changes(records),
        "lines": lambda name: _lines(name, records),
    }
    body = PLACE.sub(lambda found: parts[found[1]](found[2] or ""), template)
    return f"{body.rstrip()}\n\n{_foot(records, template)}\n"


def digest(records: Sequence[Record], template: str) -> str:
    """Return a digest of the results and the template."""
    return f"{xxhash.xxh3_64_intdigest(repr((_in_order(records), template)).encode()):016x}"


def _in_order(records: Sequence[Record]) -> list[Record]:
    """Return the records in the order of the plan; renewed ones stand at the end of a file."""
    order = {entry.name: place for place, entry in enumerate(PLAN, 1)}
    return sorted(records, key=lambda one: order.get(str(one.get("benchmark")), 0))


def number(value: object) -> str:
    """Format a figure for the page: four significant digits."""
    if not isinstance(value, int | float):
        return "failed"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def _machine(machine: Record) -> str:
    state = "with changes that are not committed" if machine["dirty"] else "clean"
    libraries = ", ".join(f"{name} {found}" for name, found in machine["libraries"].items())
    rows = [
        ("date", machine["date"]),
        ("commit", f"`{machine['commit'][:12]}`, {state}"),
        ("form", FORMS[machine["form"]]),
        ("machine", machine["machine"]),
        ("Java", machine["java"]),
        ("libraries", libraries),
        ("load average before", number(machine["load"])),
    ]
    return _table(("", ""), rows)


def _ratios(records: Sequence[Record]) -> str:
    """Return the figures beside their limits and peers."""
    limits = {one["name"].removeprefix(LIMIT): one for one in records if one["name"].startswith(LIMIT)}
    rows = [
        (
            f"`{one['name']}`",
            f"{number(one['value'])} {_cell(one['unit'].partition(' (')[0])}",
            _of_limit(limits.get(one["name"])),
            f"{number(one['ratio'])} x {_cell(one['peer'] or '')}" if one.get("ratio") else "",
        )
        for one in records
        if not failed(one)
        and not one["name"].startswith((RUN, LIMIT, PEER))
        and (one["name"] in limits or one.get("ratio"))
    ]
    return _table(("line", "figure", "of its limit", "beside the peer"), rows) if rows else "No figure has a ratio."


def _of_limit(limit: Record | None) -> str:
    """Return the ratio of a figure to its limit; "" for a limit that was measured but not related to it."""
    if limit is None or (not failed(limit) and limit.get("ratio") is None):
        return ""
    return number(limit.get("ratio"))


def _runs(records: Sequence[Record]) -> str:
    rows = [
        (
            f"`{one['name'].removeprefix(RUN)}`",
            f"`{' '.join(one['arguments'])}`" if one["arguments"] else "",
            number(one["value"]),
            f"{number(one['load_start'])}, {number(one['load_end'])}",
            *_origin({**records[0], **one}),
        )
        for one in records
        if one["name"].startswith(RUN)
    ]
    missing = [entry.name for entry in PLAN if not any(one["name"] == f"{RUN}{entry.name}" for one in records)]
    rest = f"\n\nNot measured: {', '.join(f'`{name}`' for name in missing)}." if missing else ""
    return (
        _table(("benchmark", "arguments", "seconds", "load average at start, end", "date", "commit", "machine"), rows)
        + rest
    )


def _origin(run: Record) -> tuple[str, str, str]:
    """Return date, commit and processor of a benchmark's run."""
    changed = ", changed" if run["dirty"] else ""
    return run["date"], f"`{run['commit'][:12]}`{changed}", run["machine"].partition(",")[0]


def _failures(records: Sequence[Record]) -> str:
    rows = [(f"`{one['name']}`", _cell(failed(one))) for one in records if failed(one)]
    return _table(("line", "reason"), rows) if rows else "Nothing failed."


def _lines(name: str, records: Sequence[Record]) -> str:
    form, records = records[0]["form"], [one for one in records if one.get("benchmark") == name]
    rows = [
        (
            f"`{one['name']}`",
            number(one.get("value")),
            _cell(one.get("unit") or ""),
            _cell(one.get("peer") or ""),
            number(one["ratio"]) if one.get("ratio") else "",
            AIMS[one["name"]].text(one, form) if one["name"] in AIMS else "",
        )
        for one in records
        if not one["name"].startswith(RUN)
    ]
    if rows:
        return _table(("line", "figure", "unit", "peer", "ratio", "aim"), rows)
    promised = [line for entry in PLAN if entry.name == name for line in entry.promised]
    return f"Not measured: {', '.join(f'`{line}`' for line in promised) or 'no promised lines'}."


def _changes(records: Sequence[Record]) -> str:
    found = {one["name"]: one for one in records if not failed(one)}
    trial = records[0]["form"] == "small"
    rows = [_change(name, change, found.get(name), trial) for name, change in CHANGES.items()]
    head = f"Before: the page of commit `{COMMIT}` ({MEASURED})."
    if trial:
        head += " This run is a trial: the two columns do not compare."
    return f"{head}\n\n{_table(('line', 'before', 'now', 'the figure', 'measured before', 'measured now'), rows)}"


def _change(name: str, change: Change, record: Record | None, trial: bool) -> tuple[str, ...]:
    value = None if record is None else record.get("ratio" if change.ratio else "value")
    mark = " x" if change.ratio else ""
    if record is None or value is None:
        now = verdict = "not measured"
    else:
        now = f"{number(value)}{mark}"
        verdict = "does not compare" if trial else _verdict(change, value, str(record.get("unit")))
    return f"`{name}`", f"{number(change.before)}{mark}", now, verdict, _cell(change.old), _cell(change.new)


def _verdict(change: Change, value: float, unit: str) -> str:
    """Return the verdict. Ratios and samples a second are better when greater, seconds and bytes when smaller."""
    if abs(value - change.before) <= SAME * change.before:
        return "is the same"
    greater_is_better = change.ratio or unit.startswith("samples/s")
    return "is better" if (value > change.before) == greater_is_better else "is worse"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _foot(records: Sequence[Record], template: str) -> str:
    return f"<!-- made by `artimon bench page`; digest of results and template: {digest(records, template)} -->"


def main(args: Sequence[str]) -> int:
    """Run the command line; the module describes it."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="artimon bench page", description=__doc__, formatter_class=form)
    parser.add_argument("file", type=Path, help="results of `artimon bench all --json FILE`")
    options = parser.parse_args(args)
    try:
        sys.stdout.write(page(read(options.file), TEMPLATE.read_text(encoding="utf-8")))
    except (OSError, ResultsError) as error:
        print(f"artimon bench page: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
