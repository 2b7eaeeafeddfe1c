"""Functions of a class: members at one step, or, where they choose among series, whole members."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tests.query_dsl.plainly.points import quotient, to_string
from tests.query_dsl.plainly.quantiles import quantile
from tests.query_dsl.plainly.things import Cell, Refused, Row, Value, is_nan, number
from tests.query_dsl.plainly.windows import adding, deviation_of, middle, spread

Args = Mapping[str, Any]
Members = list[tuple[Row, Value]]
"""(series, its value) of the members that have a value at the step, in canonical order."""
NAN = float("nan")


def _floats(members: Members) -> list[float]:
    return [number(v) for _, v in members]


def _extreme(members: Members, choose: Callable[[list[Any]], Any]) -> Cell:
    """Exact among whole numbers; NaN poisons."""
    values = [v for _, v in members]
    if not values:
        return None
    return NAN if any(map(is_nan, values)) else choose(values)


def _ranged(members: Members) -> Cell:
    if not members:
        return None
    values: list[Any] = [v for _, v in members]
    return NAN if any(map(is_nan, values)) else max(values) - min(values)


def _variance(members: Members, args: Args) -> float | None:
    return spread(_floats(members), args["ddof"])


def _sd(members: Members, args: Args) -> float | None:
    found = _variance(members, args)
    return None if found is None else math.sqrt(found)


def _arg(members: Members, args: Args, choose: Callable[[list[Any]], Any]) -> Cell:
    """Label of the first member that has the extreme value; NaN ranks below every number."""
    if not members:
        return None
    numbers = [(r, v) for r, v in members if not is_nan(v)] or members
    if is_nan(numbers[0][1]):
        return _label(numbers[0][0], args["label"])
    best = choose([v for _, v in numbers])
    return _label(next(r for r, v in numbers if v == best), args["label"])


def _label(row: Row, label: str) -> str:
    return row.name if label == "__name__" else row.labels.get(label, "")


SIMPLE: dict[str, tuple[Callable[[Members, Args], Cell], str]] = {
    "sum": (lambda m, a: adding(_floats(m)), "DOUBLE"),
    "mean": (lambda m, a: adding(_floats(m)) / len(m) if m else None, "DOUBLE"),
    "min": (lambda m, a: _extreme(m, min), "exact"),
    "max": (lambda m, a: _extreme(m, max), "exact"),
    "count": (lambda m, a: len(m), "INTEGER"),
    "group": (lambda m, a: 1 if m else None, "INTEGER"),
    "range": (lambda m, a: _ranged(m), "range"),
    "median": (lambda m, a: float(middle(_floats(m))) if m else None, "DOUBLE"),
    "quantile": (lambda m, a: quantile(_floats(m), a["q"], a["method"]) if m else None, "DOUBLE"),
    "var": (_variance, "DOUBLE"),
    "sd": (_sd, "DOUBLE"),
    "mad": (lambda m, a: deviation_of(_floats(m)) if m else None, "DOUBLE"),
    "first": (lambda m, a: m[0][1] if m else None, "same"),
    "last": (lambda m, a: m[-1][1] if m else None, "same"),
    "any": (lambda m, a: any(v for _, v in m) if m else None, "BOOLEAN"),
    "all": (lambda m, a: all(v for _, v in m) if m else None, "BOOLEAN"),
    "count_distinct": (lambda m, a: len({"NaN" if is_nan(v) else v for _, v in m}), "INTEGER"),
    "join": (lambda m, a: a["separator"].join(str(v) for _, v in m) if m else None, "text"),
    "argmin": (lambda m, a: _arg(m, a, min), "STRING"),
    "argmax": (lambda m, a: _arg(m, a, max), "STRING"),
}
TAKES_TEXT = frozenset({"count", "group", "first", "last", "count_values", "count_distinct", "join"})
DEFAULTS: dict[str, dict[str, Any]] = {
    "quantile": {"method": "linear"},
    "sd": {"ddof": 1},
    "var": {"ddof": 1},
    "standardize": {"ddof": 1},
    "rank": {"ascending": False},
    "running_sum": {"ascending": False, "share": False},
    "topk": {"rank": "last"},
    "bottomk": {"rank": "last"},
    "histogram_quantile": {"le": "le"},
    "histogram_fraction": {"le": "le"},
    "join": {"separator": ", "},
}


def result_type(how: str, types: set[str]) -> str:
    """Type of a class whose members have these types."""
    if how == "same":
        return common(types)
    if how == "exact":
        return "INTEGER" if types <= {"INTEGER", "BOOLEAN"} else "DOUBLE"
    if how == "range":
        return "INTEGER" if types == {"INTEGER"} else "DOUBLE"
    if how in ("BOOLEAN", "text") and types != {{"text": "STRING"}.get(how, how)}:
        raise Refused(f"{how} is needed")
    return "STRING" if how == "text" else how


def common(types: set[str]) -> str:
    if len(types) == 1:
        return next(iter(types))
    if "STRING" in types:
        raise Refused("STRING cannot be mixed with numbers")
    return "DOUBLE"


def cast(value: Cell, kind: str) -> Cell:
    """A result in the type of its class."""
    if value is None or kind in ("STRING", "BOOLEAN"):
        return value
    return number(value) if kind == "DOUBLE" else int(value)


def simple(name: str, members: list[Row], n: int, args: Args, rules: Any) -> list[Cell]:
    """One value a step of a class."""
    run, how = SIMPLE[name]
    kind = result_type(how, {m.type for m in members})
    at: list[Members] = [[(m, v) for m in members if (v := m.values[i]) is not None] for i in range(n)]
    if name == "range" and kind == "DOUBLE":  # numbers of several types are float64 before they are subtracted
        at = [[(m, number(v)) for m, v in present] for present in at]
    allowed = by_rules(name, members, n, rules)
    return [cast(run(present, args), kind) if fine else None for present, fine in zip(at, allowed, strict=True)]


def by_rules(name: str, members: list[Row], n: int, rules: Any) -> list[bool]:
    """Mask by step: True if the rules for missing values allow a result."""
    least = rules.min_count if rules.min_count is not None else 0 if name.startswith("count") else 1
    counts = [sum(m.values[i] is not None for m in members) for i in range(n)]
    if rules.nulls == "error" and any(count < len(members) for count in counts):
        raise Refused("a member has no value")
    return [c >= least and (rules.nulls != "propagate" or c == len(members)) for c in counts]


def ranked(rows: list[Row], rank: str) -> list[tuple[Row, Any]]:
    """(series, what it is ranked by), None where it has no value."""
    return [(row, rank_of(row, rank)) for row in rows]


def rank_of(row: Row, rank: str) -> Cell:
    values = [v for v in row.values if v is not None]
    if not values:
        return None
    if rank in ("last", "first"):
        return values[-1] if rank == "last" else values[0]
    if row.type == "STRING":
        return None
    if rank == "mean":
        return adding([number(v) for v in values]) / len(values)
    numbers: list[Any] = values
    if any(map(is_nan, values)):
        return NAN
    found: Value = max(numbers) if rank == "max" else min(numbers)
    return found


def best(scored: list[tuple[Row, Any]], k: int, top: bool) -> list[Row]:
    """The k best, in the order given; series without a value are none of them, NaN ranks below every number."""
    numbers = [(r, v) for r, v in scored if v is not None and not is_nan(v)]
    chosen = [r for r, _ in sorted(numbers, key=lambda pair: pair[1], reverse=top)][:k]
    chosen += [r for r, v in scored if is_nan(v)][: k - len(chosen)]
    return [r for r, _ in scored if any(r is c for c in chosen)]


def best_each(rows: list[Row], k: int, n: int, top: bool) -> list[Row]:
    """All rows, at each step only the k best of it."""
    kept: list[list[Cell]] = [[None] * n for _ in rows]
    for i in range(n):
        chosen = best([(row, row.values[i]) for row in rows], k, top)
        for j, row in enumerate(rows):
            if any(row is c for c in chosen):
                kept[j][i] = row.values[i]
    made = [Row(r.name, r.labels, r.type, v, r.newest) for r, v in zip(rows, kept, strict=True)]
    return [r for r in made if any(v is not None for v in r.values)]


def chosen_members(name: str, members: list[Row], n: int, args: Args) -> list[Row]:
    """topk and bottomk of one class."""
    top = name == "topk"
    if args["rank"] == "each":
        return best_each(members, args["k"], n, top)
    return best(ranked(members, args["rank"]), args["k"], top)


def placed_members(name: str, members: list[Row], n: int, args: Args) -> list[Row]:
    """Each member in its class: its rank, share, running sum or standard score."""
    columns: list[list[Cell]] = []
    for i in range(n):
        present = [(place, m, value) for place, m in enumerate(members) if (value := m.values[i]) is not None]
        found = dict(zip((place for place, _, _ in present), _places(name, present, args), strict=True))
        columns.append([found.get(place) for place in range(len(members))])
    kind = "INTEGER" if name == "rank" else "DOUBLE"
    return [
        Row(m.name, m.labels, kind, [column[place] for column in columns], m.newest) for place, m in enumerate(members)
    ]


def _before(one: Any, other: Any, args: Args) -> bool:
    return bool(one < other if args["ascending"] else one > other)


def _places(name: str, present: list[tuple[int, Row, Value]], args: Args) -> list[Cell]:
    values = [value for _, _, value in present]
    floats = [number(value) for value in values]
    if name == "share":
        return [quotient(value, sum(floats)) for value in floats]
    if name == "standardize":
        spread = _sd([(m, value) for _, m, value in present], args)
        if spread is None:
            return [None for _ in floats]
        return [quotient(value - sum(floats) / len(floats), number(spread)) for value in floats]
    numbers = [value for value in values if not is_nan(value)]
    if name == "rank":
        return [1 + sum(is_nan(own) or _before(other, own, args) for other in numbers) for own in values]
    order = [i for i, value in enumerate(values) if not is_nan(value)]
    order.sort(key=values.__getitem__, reverse=not args["ascending"])  # equal ones stay in canonical order
    order += [i for i, v in enumerate(values) if is_nan(v)]
    sums: list[Cell] = [None for _ in values]
    total = 0.0
    for i in order:
        total += floats[i]
        sums[i] = total
    return [quotient(number(s), sum(floats)) if args["share"] else s for s in sums if s is not None]


def counted_values(title: str, labels: dict[str, str], members: list[Row], n: int, args: Args) -> list[Row]:
    """One series for each value of the class; missing where it does not occur."""
    texts = sorted({to_string(v) for m in members for v in m.values if v is not None})
    rows = []
    for text in texts:
        at = [[m.values[i] for m in members] for i in range(n)]
        values: list[Cell] = [sum(v is not None and to_string(v) == text for v in present) or None for present in at]
        with_text = {**labels, args["label"]: text}
        rows.append(Row(title, {k: v for k, v in with_text.items() if v}, "INTEGER", values))
    return rows


def histogram(members: list[Row], n: int, args: Args) -> list[Cell]:
    """Quantile of cumulative buckets whose upper bounds stand in the label `le`; equal ones are added up."""
    found: list[Cell] = []
    for i in range(n):
        counts: dict[float, float] = {}
        for member in members:
            bound, value = bound_of(member, args["le"]), member.values[i]
            if bound is not None and value is not None:
                counts[bound] = counts.get(bound, 0.0) + number(value)
        found.append(_of_buckets(sorted(counts.items()), args["q"]))
    return found


def bound_of(member: Row, le: str) -> float | None:
    try:
        return float(member.labels.get(le, ""))
    except ValueError:
        return None


def _of_buckets(present: list[tuple[float, float]], q: float) -> Cell:
    if not present:
        return None
    if any(map(is_nan, dict(present).values())):
        return NAN
    if present[-1][0] != math.inf or len(present) < 2:
        return NAN
    if q != q:
        return NAN
    if q < 0 or q > 1:
        return math.copysign(math.inf, q - 0.5)
    counts, most = [], 0.0
    for _, count in present:
        most = max(most, count)
        counts.append(most)
    if counts[-1] == 0:
        return NAN
    wanted = q * counts[-1]
    at = next(i for i, c in enumerate([*counts[:-1], math.inf]) if c >= wanted)
    if at == len(counts) - 1:
        return present[-2][0]
    high = present[at][0]
    if at == 0 and high <= 0:
        return high
    low, below = (present[at - 1][0], counts[at - 1]) if at else (0.0, 0.0)
    return low + (high - low) * (wanted - below) / (counts[at] - below) if counts[at] > below else low
