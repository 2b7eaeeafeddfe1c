"""Encoder of the variables of a process for Prometheus: OpenMetrics 1.0, or the older text format 0.0.4.

Mapping of names and types: invalid characters become `_`; a counter ends with `_total`; a STRING becomes an info metric
with its text in the label `value`; a BOOLEAN becomes a gauge, 0 or 1; a histogram stays one. If two names become equal,
the family that sorts later is left out, and the metric `LEFT_OUT_METRIC` counts its series.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

from bookkeeper.variables.cell import STRING
from bookkeeper.variables.snapshot import VariableEntry

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"
LEFT_OUT_METRIC = "artimon_openmetrics_left_out"
INFINITY = "+Inf"
_OTHER = re.compile(r"[^a-zA-Z0-9_:]")
_SUFFIXES = {
    "counter": ("_total", "_created"),
    "histogram": ("_bucket", "_sum", "_count", "_created"),
    "info": ("_info",),
}


class MetricFamily(NamedTuple):
    """All series of one exposed name. `lines`: pairs of series text and value, in order."""

    name: str
    kind: str
    help: str
    unit: str
    lines: list[tuple[str, str]]


def render(entries: Iterable[VariableEntry], *, openmetrics: bool = True) -> str:
    """Format the result of `bookkeeper.collect()`, families sorted by name; OpenMetrics, or the text format 0.0.4."""
    families, left_out = _families(sorted(entries, key=lambda entry: (*_group_key(entry), entry.name)))
    if left_out:
        told = "Series left out because another family has the same Prometheus name"
        families.append(MetricFamily(LEFT_OUT_METRIC, "gauge", told, "", [(LEFT_OUT_METRIC, str(left_out))]))
    write = _openmetrics_lines if openmetrics else _plain_lines
    text = "".join(write(family) for family in families)
    return text + "# EOF\n" if openmetrics else text


def content_type(accept: str) -> tuple[bool, str]:
    """Negotiate the format by a client's Accept header: True for OpenMetrics, and the content type."""
    wanted = "application/openmetrics-text" in accept.lower()
    return wanted, OPENMETRICS if wanted else PLAIN


def _families(entries: list[VariableEntry]) -> tuple[list[MetricFamily], int]:
    families: list[MetricFamily] = []
    taken = {LEFT_OUT_METRIC}
    left_out = 0
    for _, group in groupby(entries, key=_group_key):
        members = list(group)
        family = _family(members)
        names = {family.name, *(family.name + suffix for suffix in _SUFFIXES.get(family.kind, ()))}
        if taken.isdisjoint(names):
            taken |= names
            families.append(family)
        else:
            left_out += len(members)
    return families, left_out


def _group_key(entry: VariableEntry) -> tuple[str, str]:
    """Key of the family: numbers, texts and a histogram of one name form three families."""
    if entry.type == STRING:
        return entry.family, "info"
    return entry.family, "histogram" if entry.kind == "histogram" else ""


def _family(members: list[VariableEntry]) -> MetricFamily:
    first = members[0]
    name = _OTHER.sub("_", first.family)
    if first.type == STRING:
        name = name[:-5] if name.endswith("_info") else name
        return MetricFamily(name, "info", first.help, "", [(f"{name}_info{_text(one)}", "1") for one in members])
    if first.kind == "histogram":
        return MetricFamily(name, "histogram", first.help, first.unit, _buckets(name, members))
    kind = _kind(members)
    total = name.endswith("_total")
    if kind == "counter":
        name = name if total else name + "_total"
        if all(_counts(one.value) for one in members):
            lines = [(name + _labels(one.labels), _number(one.value)) for one in members]
            return MetricFamily(name[:-6], "counter", first.help, first.unit, lines)
        kind = "unknown"  # a counter that was set to a negative value or NaN; its series keep their name
    lines = [(name + _labels(one.labels), _number(one.value)) for one in members]
    return MetricFamily(name, kind, first.help, first.unit, lines)


def _kind(members: list[VariableEntry]) -> str:
    """Kind that all members share, else unknown."""
    kinds = {one.kind for one in members}
    return kinds.pop() if len(kinds) == 1 else "unknown"


def _counts(value: object) -> bool:
    return isinstance(value, (int, float)) and value >= 0


def _buckets(name: str, members: list[VariableEntry]) -> list[tuple[str, str]]:
    """Lines of a histogram: for each label set its buckets in order, its count and its sum."""
    series: dict[str, tuple[Mapping[str, str], dict[str, float], list[float]]] = {}
    for one in members:
        labels: Mapping[str, str] = {label: value for label, value in one.labels.items() if label != "le"}
        _, buckets, sums = series.setdefault(_labels(labels), (labels, {}, []))
        if one.name.endswith(".bucket"):
            buckets[one.labels.get("le", INFINITY)] = _as_number(one.value)
        elif one.name.endswith(".sum"):
            sums.append(_as_number(one.value))
    lines = []
    for text, (labels, buckets, sums) in sorted(series.items(), key=lambda item: item[0]):
        if INFINITY not in buckets:  # incomplete because of a limit: readers would reject it
            continue
        seen: float = 0
        for bound in sorted(buckets, key=lambda le: float(le)):
            seen = max(seen, buckets[bound])  # this bucket may have been read before the one below it
            lines.append((f"{name}_bucket{_labels({**labels, 'le': bound})}", _number(seen)))
        lines.append((f"{name}_count{text}", _number(seen)))
        if min(map(float, buckets)) >= 0:  # else the sum may fall, and the format requires leaving it out
            lines += [(f"{name}_sum{text}", _number(total)) for total in sums[:1] if total >= 0]
    return lines


def _as_number(value: object) -> float:
    return value if isinstance(value, (int, float)) else 0.0


def _text(one: VariableEntry) -> str:
    """Labels of an info metric."""
    label = "value"
    while label in one.labels:
        label += "_"
    return _labels({**one.labels, label: str(one.value)})


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = [f'{label}="{_escaped(value)}"' for label, value in sorted(labels.items())]
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        if value != value:
            return "NaN"
        if value in (float("inf"), float("-inf")):
            return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _openmetrics_lines(family: MetricFamily) -> str:
    lines = [f"# TYPE {family.name} {family.kind}\n"]
    unit = _OTHER.sub("_", family.unit)
    if unit and family.name.endswith("_" + unit):  # OpenMetrics requires that the name ends with the unit
        lines.append(f"# UNIT {family.name} {unit}\n")
    if family.help:
        lines.append(f"# HELP {family.name} {_escaped(family.help)}\n")
    return "".join([*lines, *(f"{before} {value}\n" for before, value in family.lines)])


def _plain_lines(family: MetricFamily) -> str:
    """Format 0.0.4: a counter's family has the name of its samples, and info metrics become gauges."""
    suffix = {"counter": "_total", "info": "_info"}.get(family.kind, "")
    kind = {"info": "gauge", "unknown": "untyped"}.get(family.kind, family.kind)
    name = family.name + suffix
    help = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    head = (f"# HELP {name} {help}\n" if help else "") + f"# TYPE {name} {kind}\n"
    return head + "".join(f"{before} {value}\n" for before, value in family.lines)
