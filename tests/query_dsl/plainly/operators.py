"""Operators between two operands, and how their series are paired."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.query_dsl.plainly.points import power, quotient, remainder
from tests.query_dsl.plainly.reducers import cast, common
from tests.query_dsl.plainly.things import Cell, Plain, Refused, Row, Table, Value, in_order, is_nan, number, type_of

NAN = float("nan")
ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": quotient,
    "mod": remainder,
    "pow": power,
}
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
MASKS = ("mask", "negmask")
Side = Row | Plain


def plain_type(side: Side) -> str:
    if isinstance(side, Row):
        return side.type
    return side.type or type_of(side.value)  # type: ignore[arg-type]


def takes(op: str, left: str, right: str) -> bool:
    """True if the operator accepts values of these types."""
    if op in COMPARE:
        return (left == "STRING") == (right == "STRING") and ("STRING" not in (left, right) or op in ("eq", "ne"))
    if op in ("and", "or"):
        return left == right == "BOOLEAN"
    if op in MASKS:
        return right == "BOOLEAN"
    return "STRING" not in (left, right)


def result_type(op: str, left: str, right: str) -> str:
    if op in COMPARE or op in ("and", "or"):
        return "BOOLEAN"
    if op in MASKS:
        return left
    if op in ("min", "max"):
        return "INTEGER" if {left, right} <= {"INTEGER", "BOOLEAN"} else "DOUBLE"
    return "DOUBLE"


def one(op: str, a: Cell, b: Cell) -> Cell:
    """The result of two values, missing where one of them is."""
    if a is None or b is None:
        return None
    if op in ARITHMETIC:
        return ARITHMETIC[op](number(a), number(b))
    if op in COMPARE:
        return compared(op, a, b)
    if op in MASKS:
        return a if b == (op == "mask") else None
    if op in ("min", "max"):
        return smaller(op, a, b)
    return bool(a and b) if op == "and" else bool(a or b)


def smaller(op: str, a: Any, b: Any) -> Value:
    if is_nan(a) or is_nan(b):
        return NAN
    found = min(a, b) if op == "min" else max(a, b)
    return number(found) if isinstance(a, float) or isinstance(b, float) else int(found)


def compared(op: str, a: Value, b: Value) -> bool:
    """Whole numbers as such, others as float64; texts with texts only."""
    if isinstance(a, float) or isinstance(b, float):
        a, b = number(a), number(b)
    return COMPARE[op](a, b)


def values_of(op: str, left: Side, right: Side, n: int) -> list[Cell]:
    def at(side: Side, i: int) -> Cell:
        return side.values[i] if isinstance(side, Row) else side.at(i)

    return [one(op, at(left, i), at(right, i)) for i in range(n)]


# --- pairing ---


def key_of(row: Row, match: Any) -> tuple[tuple[str, str], ...]:
    """Labels that are compared: those of `on`, all but those of `ignoring`, or all; absent ones as ""."""
    if match.on is not None:
        return tuple((label, row.labels.get(label, "")) for label in match.on)
    ignored = match.ignoring or ()
    return tuple(sorted((k, v) for k, v in row.labels.items() if k not in ignored))


def check_labels(match: Any, tables: Iterable[Table]) -> None:
    """Every label of `on` stands on some series of one side at least."""
    rows = [row for table in tables for row in table.rows]
    for label in match.on or ():
        if rows and not any(label in r.labels for r in rows):
            raise Refused(f"no series has the label {label}")


def grouped(rows: list[Row], match: Any, many: bool) -> dict[Any, list[Row]]:
    out: dict[Any, list[Row]] = {}
    for row in rows:
        out.setdefault(key_of(row, match), []).append(row)
    for found in out.values():
        if len(found) > 1 and not many:
            raise Refused(f"two series have the same key: {found[0].text()} and {found[1].text()}")
    return out


Pairs = list[tuple[Row | None, Row | None, dict[str, str]]]


Defaults = tuple[Plain | None, Plain | None]


def pairs(left: Table, right: Table, match: Any, mask: bool = False, defaults: Defaults = (None, None)) -> Pairs:
    """(left, right, labels of the result); None where the partner is missing and another value takes its place."""
    instead = [match.fill is not None or default is not None for default in defaults]
    if mask:
        instead[0] = False
    check_labels(match, (left, right))
    lefts = grouped(left.rows, match, match.group_left is not None or mask)
    rights = grouped(right.rows, match, match.group_right is not None)
    lonely = [not instead[0] and rights.keys() - lefts.keys(), not instead[1] and lefts.keys() - rights.keys()]
    if match.unmatched == "error" and any(lonely):
        raise Refused("series without a partner")
    out: Pairs = []
    for key in [*lefts, *(k for k in rights if k not in lefts)]:
        if (key not in lefts and not instead[0]) or (key not in rights and not instead[1]):
            continue
        for a in lefts.get(key, [None]):
            for b in rights.get(key, [None]):
                out.append((a, b, labels_of(a, b, key, match)))
    return out


def labels_of(a: Row | None, b: Row | None, key: tuple[tuple[str, str], ...], match: Any) -> dict[str, str]:
    taken = match.group_left if match.group_left is not None else match.group_right
    if taken is None:
        return {k: v for k, v in key if v}
    many, single = (a, b) if match.group_left is not None else (b, a)
    labels = dict(many.labels) if many else {k: v for k, v in key if v}
    for label in taken:
        labels[label] = single.labels.get(label, "") if single else ""
    return {k: v for k, v in labels.items() if v}


def join(op: str, left: Table, right: Table, match: Any, defaults: Defaults = (None, None)) -> Table:
    """An operator between two tables."""
    if op in MASKS and (match.group_left is not None or match.group_right is not None or match.fill is not None):
        raise Refused(f"{op} takes no group_left, group_right or fill")
    found = pairs(left, right, match, op in MASKS, defaults)
    fill = Plain(match.fill)
    kept: list[Row] = []
    for a, b, labels in found:
        x, y = a or defaults[0] or fill, b or defaults[1] or fill
        types = plain_type(x), plain_type(y)
        if not takes(op, *types):
            continue
        name = a.name if op in MASKS and a else ""
        own = dict(a.labels) if op in MASKS and a else labels
        kept.append(Row(name, own, result_type(op, *types), values_of(op, x, y, left.grid.n)))
    if found and not kept:
        raise Refused(f"{op} cannot take the types of any pair")
    return Table(left.grid, in_order(kept))


def filled(side: Table | Plain, default: Plain) -> Table | Plain:
    """The default in place of missing points."""
    if isinstance(side, Plain):
        if side.values is None:
            return side
        row = as_row(Row("", {}, plain_type(side), side.values), default)
        return Plain(None, row.values, row.type)
    able = [row for row in side.rows if row.type != "STRING"]
    if side.rows and not able:
        raise Refused("a default cannot take STRING")
    return Table(side.grid, [as_row(row, default) for row in able])


def as_row(row: Row, default: Plain) -> Row:
    """The row in a type that holds both, without missing values."""
    given = plain_type(default)
    if row.type == "STRING":
        raise Refused("a default cannot take STRING")
    kind = "DOUBLE" if given == "DOUBLE" else "INTEGER" if (given, row.type) == ("INTEGER", "BOOLEAN") else row.type
    values = [cast(default.value if v is None else v, kind) for v in row.values]
    return Row(row.name, row.labels, kind, [bool(v) if kind == "BOOLEAN" else v for v in values], row.newest)


def able(op: str, table: Table | Plain, side: str) -> Table | Plain:
    """Without the STRING series that the operator cannot take."""
    if isinstance(table, Plain) or op in ("eq", "ne", "and", "or") or (op in MASKS and side == "left"):
        return table
    rows = [r for r in table.rows if r.type != "STRING"]
    if table.rows and not rows:
        raise Refused(f"{op} cannot take STRING")
    return Table(table.grid, rows)


def with_plain(op: str, left: Table | Plain, right: Table | Plain) -> Table:
    """An operator between a table and a plain value."""
    table = left if isinstance(left, Table) else right
    assert isinstance(table, Table)
    plain = plain_type(right if left is table else left)  # type: ignore[arg-type]
    if op not in ("eq", "ne") and not takes(op, plain, "BOOLEAN"):
        raise Refused(f"{op} cannot take this plain value")
    kept: list[Row] = []
    for row in table.rows:
        a: Side = row if left is table else left  # type: ignore[assignment]
        b: Side = row if right is table else right  # type: ignore[assignment]
        types = plain_type(a), plain_type(b)
        if takes(op, *types):
            name = row.name if op in MASKS else ""
            kept.append(Row(name, row.labels, result_type(op, *types), values_of(op, a, b, table.grid.n)))
    if table.rows and not kept:
        raise Refused(f"{op} cannot take the types of any series")
    return Table(table.grid, in_order(kept))


# --- set operators ---


def sets(op: str, left: Table, right: Table, match: Any) -> Table:
    """and_, unless, or_: by step, names and labels kept."""
    n = left.grid.n
    check_labels(match, (left, right))
    partner = {key: present(rows, n) for key, rows in grouped(right.rows, match, True).items()}
    if op == "or":
        return union(left, right, match)
    rows = []
    for row in left.rows:
        there = partner.get(key_of(row, match), [False] * n)
        values = [v if t == (op == "and") else None for v, t in zip(row.values, there, strict=True)]
        rows.append(Row(row.name, row.labels, row.type, values, row.newest))
    return Table(left.grid, in_order([r for r in rows if any(v is not None for v in r.values)]))


def present(rows: list[Row], n: int) -> list[bool]:
    return [any(r.values[i] is not None for r in rows) for i in range(n)]


def union(left: Table, right: Table, match: Any) -> Table:
    n = left.grid.n
    there = {key: present(rows, n) for key, rows in grouped(left.rows, match, True).items()}
    found = {(r.name, tuple(sorted(r.labels.items()))): r for r in left.rows}
    for row in right.rows:
        taken = there.get(key_of(row, match), [False] * n)
        values = [None if t else v for v, t in zip(row.values, taken, strict=True)]
        key = (row.name, tuple(sorted(row.labels.items())))
        if key in found:
            mine = found[key]
            values = [b if a is None else a for a, b in zip(mine.values, values, strict=True)]
            row = Row(row.name, row.labels, common({mine.type, row.type}), values, row.newest)
        found[key] = Row(row.name, row.labels, row.type, [cast(v, row.type) for v in values], row.newest)
    return Table(left.grid, in_order([r for r in found.values() if any(v is not None for v in r.values)]))
