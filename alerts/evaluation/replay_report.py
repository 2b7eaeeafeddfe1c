"""Reports of replays: table, JSON, and the differences of two versions of rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from alerts.evaluation.rule_replay import Firing, Replay, RuleReplay
from artimon.runtime.text import printable
from query_dsl.tree.times import format_duration, format_time

COLUMNS = ("rule", "alert", "fired", "total", "longest", "pages", "first", "last resolved")
SHOWN_FIRINGS = 40
"""Maximum number of alerts in the table of a rule, and of differences that the text lists."""


def replay_json(replay: Replay) -> dict[str, Any]:
    """Return a replay as JSON. Times are ISO 8601, durations milliseconds."""
    return {
        "from": format_time(replay.start_ms),
        "to": format_time(replay.end_ms),
        "pages": replay.pages,
        "rules": [_rule_json(one, replay.end_ms) for one in replay.rules],
    }


def _rule_json(report: RuleReplay, end_ms: int) -> dict[str, Any]:
    return {
        "rule": report.rule.name,
        "file": report.rule.file,
        "line": report.rule.line,
        **_figures(report, end_ms),
        "evaluations": report.evaluations,
        "errors": [
            {"error": text, "evaluations": count, "first": format_time(first_ms)}
            for text, (count, first_ms) in report.errors.items()
        ],
        "firings": [_firing_json(one, end_ms) for one in report.firings],
    }


def _figures(report: RuleReplay, end_ms: int) -> dict[str, int]:
    return {**_figures_of(report.firings, end_ms), "pages": report.pages}


def _firing_json(one: Firing, end_ms: int) -> dict[str, Any]:
    return {
        "labels": dict(one.labels),
        "fired": format_time(one.fired_ms),
        "resolved": format_time(one.resolved_ms) if one.resolved_ms else None,
        "duration_ms": one.duration_ms(end_ms),
        "value": one.value,
    }


# ---- table


def replay_table(replay: Replay) -> list[str]:
    """Return the lines of a table: each rule, and each of its alerts below it."""
    rows: list[Sequence[str]] = [COLUMNS]
    for report in replay.rules:
        figures = _figures(report, replay.end_ms)
        rows.append((report.rule.name, "", *_cells(figures, report.firings)))
        alerts = _by_alert(report.firings)
        for labels, firings in list(alerts.items())[:SHOWN_FIRINGS]:
            rows.append(("", labels, *_cells(_figures_of(firings, replay.end_ms), firings)))
        if len(alerts) > SHOWN_FIRINGS:
            rows.append(("", f"and {len(alerts) - SHOWN_FIRINGS} more alerts: see --json"))
    head = f"{format_time(replay.start_ms)} to {format_time(replay.end_ms)}: {replay.pages:,} pages"
    return [head, *_aligned(rows)]


def _figures_of(firings: Sequence[Firing], end_ms: int) -> dict[str, int]:
    spans = [one.duration_ms(end_ms) for one in firings]
    return {"fired": len(spans), "total_ms": sum(spans), "longest_ms": max(spans, default=0)}


def _cells(figures: Mapping[str, int], firings: Sequence[Firing]) -> Iterator[str]:
    yield f"{figures['fired']:,}"
    yield _duration(figures["total_ms"])
    yield _duration(figures["longest_ms"])
    yield f"{figures['pages']:,}" if "pages" in figures else ""
    yield format_time(firings[0].fired_ms) if firings else ""
    if any(not one.resolved_ms for one in firings):
        yield "fires"
    else:
        yield format_time(max(one.resolved_ms for one in firings)) if firings else ""


def _by_alert(firings: Iterable[Firing]) -> dict[str, list[Firing]]:
    """Return the firings of each alert, the alert that fired longest first."""
    found: dict[str, list[Firing]] = {}
    for one in firings:
        found.setdefault(_labels(one), []).append(one)
    last = max((one.resolved_ms or one.fired_ms for one in firings), default=0)
    return dict(sorted(found.items(), key=lambda pair: -sum(one.duration_ms(last) for one in pair[1])))


def _labels(one: Firing) -> str:
    return printable(" ".join(f"{name}={value}" for name, value in one.labels)) or "(no labels)"


def _duration(ms: int) -> str:
    return format_duration(ms) if ms else "0"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max((len(row[at]) for row in rows if at < len(row) > 2), default=0) for at in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]


# ---- comparison


def comparison_json(before: Replay, after: Replay) -> dict[str, Any]:
    """Return the differences of two replays of the same range as JSON. A firing is in both if firings of the same alert
    overlap."""
    old, new = _by_name(before), _by_name(after)
    return {
        "from": format_time(before.start_ms),
        "to": format_time(before.end_ms),
        "pages": [before.pages, after.pages],
        "rules_only_before": [name for name in old if name not in new],
        "rules_only_after": [name for name in new if name not in old],
        "rules": [
            {
                "rule": name,
                "before": _figures(old[name], before.end_ms),
                "after": _figures(new[name], after.end_ms),
                "firings_only_before": [
                    _firing_json(one, before.end_ms) for one in _missing(old[name], new[name], before.end_ms)
                ],
                "firings_only_after": [
                    _firing_json(one, after.end_ms) for one in _missing(new[name], old[name], after.end_ms)
                ],
            }
            for name in old
            if name in new
        ],
    }


def comparison_table(before: Replay, after: Replay) -> list[str]:
    """Return the lines of the differences of two replays of the same range."""
    found = comparison_json(before, after)
    rows: list[Sequence[str]] = [("rule", "fired", "total", "longest", "pages")]
    changes: list[str] = []
    for one in found["rules"]:
        old, new = one["before"], one["after"]
        pairs: list[tuple[str, Callable[[int], str]]] = [
            ("fired", str),
            ("total_ms", _duration),
            ("longest_ms", _duration),
            ("pages", str),
        ]
        rows.append((one["rule"], *(f"{show(old[name])} -> {show(new[name])}" for name, show in pairs)))
        for sign, key in (("-", "firings_only_before"), ("+", "firings_only_after")):
            changes += [_change(sign, one["rule"], firing) for firing in one[key]]
    head = f"{found['from']} to {found['to']}: {before.pages:,} -> {after.pages:,} pages"
    lines = [head, *_aligned(rows)]
    lines += [f"- rule {name}" for name in found["rules_only_before"]]
    lines += [f"+ rule {name}" for name in found["rules_only_after"]]
    lines += changes[:SHOWN_FIRINGS]
    if len(changes) > SHOWN_FIRINGS:
        lines.append(f"and {len(changes) - SHOWN_FIRINGS} more firings: see --json")
    return lines


def _change(sign: str, rule: str, firing: Mapping[str, Any]) -> str:
    labels = printable(" ".join(f"{name}={value}" for name, value in firing["labels"].items()))
    return f"{sign} {rule} {labels} {firing['fired']} to {firing['resolved'] or 'the end'}"


def _by_name(replay: Replay) -> dict[str, RuleReplay]:
    return {report.rule.name: report for report in replay.rules}


def _missing(own: RuleReplay, other: RuleReplay, end_ms: int) -> list[Firing]:
    """Return the firings of `own` that overlap none of the same alert in `other`."""
    theirs: dict[object, list[Firing]] = {}
    for one in other.firings:
        theirs.setdefault(one.labels, []).append(one)

    def overlaps(one: Firing, two: Firing) -> bool:
        return one.fired_ms < (two.resolved_ms or end_ms + 1) and two.fired_ms < (one.resolved_ms or end_ms + 1)

    return [one for one in own.firings if not any(overlaps(one, two) for two in theirs.get(one.labels, ()))]
