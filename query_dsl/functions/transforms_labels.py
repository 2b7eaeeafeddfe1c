"""Transforms of names and labels. On a grid two series with the same new key are an error; raw samples may share a key
until `merge` combines them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from artimon.model.select import NAME
from query_dsl.functions.join import check_distinct, check_labels, classifier, series_name
from query_dsl.functions.registry import Args, Argument
from query_dsl.functions.step import Evaluation, Step, StepCall
from query_dsl.results.matrix import Matrix
from query_dsl.results.raw_series import RawSeries
from query_dsl.results.result_cells import Example, SeriesKey
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.selector import compile_regex, quote

MAX_VALUE_BYTES = 1_024
MAX_LABELS = 40
MAX_GROUP_DIGITS = 5
"""Digits of the number of a group: longer ones cannot exist."""
Keys = Sequence[SeriesKey]
Relabel = Callable[[Keys, Args], list[SeriesKey]]
_TEMPLATE = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}|[{}]")
_REFERENCE = re.compile(r"\$(?:(\$)|([A-Za-z0-9_]+)|\{([A-Za-z0-9_]+)\})|\\(\d)")


def set_label(key: SeriesKey, label: str, value: str, function: str) -> SeriesKey:
    """Set a label of a key; "" removes it, `__name__` sets the name. QueryError beyond the limits of labels."""
    if len(value) * 4 > MAX_VALUE_BYTES and len(value.encode()) > MAX_VALUE_BYTES:
        raise QueryError(
            f"{function}: {label}={quote(value[:40])}… of {series_name(key)} would have {len(value.encode())} bytes; "
            f"labels have at most {MAX_VALUE_BYTES}"
        )
    if label == NAME:
        return SeriesKey(value, key.labels)
    rest = [pair for pair in key.labels if pair[0] != label]
    if value:
        rest.append((label, value))
        rest.sort()
    if len(rest) > MAX_LABELS:
        raise QueryError(
            f"{function}: {series_name(key)} would have {len(rest)} labels; at most {MAX_LABELS} are allowed"
        )
    return SeriesKey(key.name, tuple(rest))


def replace_keys(found: Matrix, keys: list[SeriesKey], function: str) -> Matrix:
    """Replace the keys and restore the canonical order; QueryError if two series become equal."""
    check_distinct(keys, found.keys, function, "keep a label that distinguishes them")
    if keys == list(found.keys):
        return found
    return Matrix.in_order(keys, found.grid, found.column, found.strings)


def replace_sample_keys(found: RawSeries, keys: list[SeriesKey], function: str, context: Evaluation) -> RawSeries:
    """Replace the keys of raw samples; add a note with the number of series that became equal."""
    same = len(keys) - len(set(keys))
    if same > len(found.keys) - len(set(found.keys)):
        context.note(f"{function}: {same} series share a key with another one: use merge to combine them")
    return found.renamed(keys)


def parse_template(text: str) -> list[tuple[str, str]]:
    """Split a name into texts, each with the label in braces behind it ("" for the last). Raises QueryError for a brace
    that is not part of `{label}`, `{{` or `}}`."""
    parts, literal, at = [], "", 0
    for found in _TEMPLATE.finditer(text):
        literal += text[at : found.start()]
        at = found.end()
        if found[1] is not None:
            parts.append((literal, found[1]))
            literal = ""
        elif len(found[0]) == 2:
            literal += found[0][0]
        else:
            raise QueryError(
                f"named: write a label in braces, as in {{host}}, or {{{{ and }}}} for braces: {text!r:.80}"
            ).with_culprit(text)
    return [*parts, (literal + text[at:], "")]


def name_by_labels(keys: Keys, template: str) -> list[SeriesKey]:
    """Name series by a template; a label that a series lacks is "". Raises QueryError for a label that no series has,
    and for a name that is too long."""
    parts = parse_template(template)
    check_labels(tuple(label for _, label in parts if label not in ("", NAME)), keys, f"named({template!r})")
    names = ["".join(text + (key.get(label) if label else "") for text, label in parts) for key in keys]
    return [set_label(key, NAME, name, "named") for key, name in zip(keys, names, strict=True)]


def _relabel(keys: Keys, args: Args) -> list[SeriesKey]:
    return [set_label(key, args["label"], args["value"], "relabel") for key in keys]


def _rename(keys: Keys, args: Args) -> list[SeriesKey]:
    return [set_label(key, NAME, args["name"], "rename") for key in keys]


def _label_replace(keys: Keys, args: Args) -> list[SeriesKey]:
    target, source = args["target"], args["source"]
    replace = make_replacer(args["pattern"], args["replacement"])
    seen: dict[str, str | None] = {}
    out = []
    for key in keys:
        value = key.get(source)
        if value not in seen:
            seen[value] = replace(value)
        new = seen[value]
        out.append(key if new is None else set_label(key, target, new, "label_replace"))
    return out


def make_replacer(pattern: str, replacement: str) -> Callable[[str], str | None]:
    """Return a function from a value to the expanded replacement, or None if the RE2 pattern does not match all of it.

    References: `$1` or `\\1`, `$name` (longest possible name), `${name}`; `$$` is a `$`. Raises QueryError for a group
    that the pattern does not have."""
    regex: Any = compile_regex(pattern)
    groups = _referenced_groups(regex, pattern, replacement)

    def run(value: str) -> str | None:
        found = regex.fullmatch(value)
        if found is None:
            return None
        return _REFERENCE.sub(lambda part: part[1] or found.group(groups[part[0]]) or "", replacement)

    return run


def _referenced_groups(regex: Any, pattern: str, replacement: str) -> dict[str, int]:
    """Return the number of the group of each reference. Raises QueryError for one that does not exist."""
    named: dict[str, int] = dict(regex.groupindex)
    out: dict[str, int] = {}
    for part in _REFERENCE.finditer(replacement):
        name = part[2] or part[3] or part[4]
        if not name:
            continue
        number = int(name) if name.isdigit() and len(name) < MAX_GROUP_DIGITS else named.get(name, -1)
        if not 0 <= number <= regex.groups:
            raise QueryError(
                f"label_replace: the pattern {pattern!r:.80} has no group {name!r:.40}, it has {regex.groups}: write "
                "${1} before letters and digits, $$ for a dollar"
            )
        out[part[0]] = number
    return out


def _join_labels(asked: StepCall) -> Matrix:
    """Copy labels from the partner of each series, many to one."""
    found, other = asked.child(), asked.operand("other")
    on, labels = asked.args["on"], asked.args["labels"]
    check_labels(on, found.keys, f"on={list(on)!r}")
    check_labels((*on, *labels), other.keys, f"on={list(on)!r}, labels={list(labels)!r}")
    classify = classifier(on, None)
    partners: dict[Any, tuple[SeriesKey, tuple[str, ...]]] = {}
    for key in other.keys:
        values = tuple(key.get(label) for label in labels)
        first, known = partners.setdefault(classify(key), (key, values))
        if known != values:
            raise _two_partners(first, key, on, labels)
    keys, lonely = [], 0
    for key in found.keys:
        partner = partners.get(classify(key))
        lonely += partner is None
        for label, value in zip(labels, partner[1] if partner else (), strict=False):
            key = set_label(key, label, value, "join_labels")
        keys.append(key)
    if lonely:
        asked.context.note(f"join_labels: {lonely} of {len(keys)} series have no partner and keep their labels")
    return replace_keys(found, keys, "join_labels")


def _two_partners(first: SeriesKey, second: SeriesKey, on: Sequence[str], labels: Sequence[str]) -> QueryError:
    label = next(label for label in labels if first.get(label) != second.get(label))
    return QueryError(
        f"join_labels: {series_name(first)} and {series_name(second)} have the same {', '.join(on) or 'key'} but "
        f"differ in {label}: add a label to on=, or reduce or filter the other variable so that one is left"
    )


def _steps(relabel: Relabel, name: str) -> tuple[Any, Any]:
    """Make `run` and `on_samples` of a step that changes keys."""

    def run(asked: StepCall) -> Matrix:
        found = asked.child()
        return replace_keys(found, relabel(found.keys, asked.args), name)

    def on_samples(found: RawSeries, args: Args, context: Evaluation) -> RawSeries:
        return replace_sample_keys(found, relabel(found.keys, args), name, context)

    return run, on_samples


_ROW = (1.0, None, 5.0)
_CASE = Example((_ROW,), _ROW)


def _entry(name: str, summary: str, args: str, relabel: Relabel, arguments: tuple[Argument, ...]) -> Step:
    run, on_samples = _steps(relabel, name)
    return Step(
        name=name,
        summary=summary,
        example=f"fetch('temperature').transform(\"{name}\", {args})",
        case=_CASE,
        case_args=args,
        arguments=arguments,
        family="transform",
        run=run,
        on_samples=on_samples,
    )


ENTRIES: tuple[Step, ...] = (
    _entry(
        "relabel",
        'Sets a label to a value; "" removes it. Two series that become the same are an error. Of any type.',
        '"unit", "celsius"',
        _relabel,
        (Argument("label", "label", "name of the label"), Argument("value", "text", 'its value; "" removes it')),
    ),
    _entry(
        "rename",
        "Another name for every series, as .named does. Of any type.",
        '"warmth"',
        _rename,
        (Argument("name", "text", "the new name"),),
    ),
    _entry(
        "label_replace",
        "Sets target to the replacement where the pattern matches the whole value of source ($1, \\1, ${name}: its "
        "groups; $$ a dollar); other series stay as they are. Of any type.",
        '"row", "$1", "rack", "(.).*"',
        _label_replace,
        (
            Argument("target", "label", "the label that is set"),
            Argument("replacement", "text", "its value, with groups of the pattern"),
            Argument("source", "label", "the label that is read"),
            Argument("pattern", "regex", "RE2, matches the whole value"),
        ),
    ),
    Step(
        name="join_labels",
        summary="Takes labels over from the series of another query that agrees in the labels `on`, many to one. Two "
        "partners with different values are an error; series without a partner stay as they are and are counted. "
        "Of any type.",
        example='fetch(\'cpu.load\').transform("join_labels", fetch(\'build.info\'), on=["host"], labels=["version"])',
        case=_CASE,
        arguments=(
            Argument("on", "labels", "labels that must agree"),
            Argument("labels", "labels", "labels that are taken over"),
        ),
        family="transform",
        operands=("other",),
        run=_join_labels,
    ),
)
