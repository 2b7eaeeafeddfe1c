"""Dashboard files: variables and panels in YAML. docs/dashboards.md."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self

import yaml
from pydantic import Field, model_validator
from pydantic_core import InitErrorDetails

from artimon.runtime.config_file import ConfigFile, ConfigFileError, ConfigProblem, parse_config
from artimon.runtime.config_model import Section, Text, choice, fault, parsed, raise_faults, repeated
from artimon.runtime.text import did_you_mean
from query_dsl import parse as parse_query
from query_dsl import parse_selector
from query_dsl.promql import parse as parse_promql

MAX_BYTES = 512 << 10
MAX_PANELS, MAX_QUERIES, MAX_VARIABLES, MAX_ENTRIES, MAX_MARKS = 300, 30, 60, 200, 10
COLUMNS = 24
"""Columns of the grid."""
KINDS = ("chart", "value", "table", "bars", "heatmap", "states", "text")
LANGUAGES = ("artimon", "promql")
UNITS = ("", "bytes", "bytes/s", "bits/s", "percent", "ratio", "s", "ms", "/s")
RANGES = ("15m", "1h", "3h", "12h", "1d", "3d", "7d", "30d", "90d", "365d")
REFRESHES = ("off", "10s", "60s")
REDUCTIONS = ("last", "mean", "min", "max", "sum")
STATES = ("good", "warn", "bad")
BUILT_IN: Mapping[str, str] = {"__interval": "1m", "__rate_interval": "5m", "__range": "1h"}
"""Variables of every dashboard, and values with which queries are checked."""
REFERENCE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
_LINK = re.compile(r"https?://[^\s$/?#@\\]+(?:[/?#]\S*)?|/(?![/\\])\S*|\?\S*|dashboards\?\S*")


def check_name(name: str) -> str:
    """Return the name of a dashboard. Raises ValueError unless it is safe as a file name."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r:.80}: write a name of a-z, 0-9, - and _, at most 64 characters, such as web-shop")
    return name


def _variable_name(text: str) -> str:
    if not _VARIABLE.fullmatch(text) or text.startswith("__"):
        raise ValueError(f"{text!r:.80}: write a name of letters, digits and _, such as host")
    return text


def _address(text: str) -> str:
    if not _LINK.fullmatch(text) or len(text) > 2_000:
        raise ValueError(f"{text!r:.80}: write an address that begins with https://, http://, / or ?")
    return text


def _selector(text: str) -> str:
    parse_selector(REFERENCE.sub("x", text))
    return text


def _word(words: tuple[str, ...]) -> Any:
    return choice({word: word for word in words})


Title = Annotated[str, Field(max_length=200)]
Long = Annotated[str, Field(max_length=10_000)]
Label = Annotated[str, Field(min_length=1, max_length=200)]
Number = Annotated[float, Field(allow_inf_nan=False)]


class Link(Section):
    """Link of a dashboard or a panel."""

    title: Title
    url: Annotated[str, parsed(_address)] = Field(description="write the address")


class Variable(Section):
    """Variable: values of a label (`label`, with `series` or `query`), a list (`values`), or a text. `all`: regular
    expression of every value."""

    name: Annotated[str, parsed(_variable_name)] = Field(description="write the name that queries use after $")
    title: Title = ""
    label: Label | None = None
    series: Annotated[str, parsed(_selector)] | None = None
    query: Annotated[str, Field(max_length=10_000)] | None = None
    lang: Annotated[str, _word(LANGUAGES)] = "artimon"
    values: Annotated[tuple[Label, ...], Field(max_length=MAX_ENTRIES)] = ()
    multi: bool = False
    all: Label | None = None
    default: Annotated[tuple[Annotated[str, Field(max_length=200)], ...], Field(max_length=MAX_ENTRIES)] = ()

    @classmethod
    def contradictions(cls, data: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
        if "values" in data and "label" in data:
            yield fault("write label or values, not both", "values", of_key=True)
        if "series" in data and "query" in data:
            yield fault("write series or query, not both", "query", of_key=True)
        for key in ("series", "query"):
            if key in data and "label" not in data:
                yield fault(f"{key} needs label, the label whose values are offered", key, of_key=True)
        if "all" in data and not data.get("multi"):
            yield fault("all needs multi: true", "all", of_key=True)
        if data.get("multi") and not ("label" in data or "values" in data):
            yield fault("a text has one value", "multi", of_key=True)

    @property
    def sample(self) -> str:
        """Value with which queries are checked."""
        return next(iter((*self.default, *self.values)), "x")


class PanelQuery(Section):
    """Query of a panel. `legend` names its series, with `{label}` for the value of a label."""

    q: Annotated[Text, Field(max_length=10_000)] = Field(description="write the query")
    lang: Annotated[str, _word(LANGUAGES)] = "artimon"
    legend: Title = ""


class Threshold(Section):
    """State of values above or below a number; of several that hold the last one counts."""

    above: Number | None = None
    below: Number | None = None
    state: Annotated[str, _word(STATES)] = Field(description="write good, warn or bad")

    @classmethod
    def contradictions(cls, data: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
        if ("above" in data) == ("below" in data):
            yield fault("write above: NUMBER or below: NUMBER")


class ValueName(Section):
    """Text in place of a value."""

    value: Number
    text: Label
    state: Annotated[str, _word(STATES)] | None = None


class Panel(Section):
    """Panel. `width` in columns of COLUMNS, `height` in rows of the page. `repeat`: a variable; one panel a value."""

    title: Title = ""
    kind: Annotated[str, _word(KINDS)] = "chart"
    description: Long = ""
    queries: Annotated[tuple[PanelQuery, ...], Field(max_length=MAX_QUERIES)] = ()
    text: Long = ""
    unit: Annotated[str, _word(UNITS)] = ""
    reduce: Annotated[str, _word(REDUCTIONS)] = "last"
    min: Number | None = None
    max: Number | None = None
    thresholds: Annotated[tuple[Threshold, ...], Field(max_length=20)] = ()
    names: Annotated[tuple[ValueName, ...], Field(max_length=100)] = ()
    width: Annotated[int, Field(ge=2, le=COLUMNS)] = 12
    height: Annotated[int, Field(ge=1, le=40)] = 8
    repeat: Label | None = None
    links: Annotated[tuple[Link, ...], Field(max_length=20)] = ()

    @classmethod
    def contradictions(cls, data: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
        is_text = data.get("kind") == "text"
        if is_text and data.get("queries"):
            yield fault("a panel of text has no queries", "queries", of_key=True)
        if not is_text and not data.get("queries"):
            yield fault("write queries, or kind: text")


class MarkQuery(Section):
    """Query of events: a mark where the value of a series becomes other than 0. `title` names it, with `{label}` for
    the value of a label."""

    q: Annotated[Text, Field(max_length=10_000)] = Field(description="write the query")
    lang: Annotated[str, _word(LANGUAGES)] = "artimon"
    title: Title = ""


class Marks(Section):
    """Marks in the charts: alerts that begin and end; by the query `starts` the starts of processes, or the changes of
    a text such as a version; by `queries` other events."""

    alerts: bool = False
    starts: Annotated[str, Field(min_length=1, max_length=10_000)] | None = None
    queries: Annotated[tuple[MarkQuery, ...], Field(max_length=MAX_MARKS)] = ()


class Dashboard(Section):
    """Whole file."""

    title: Annotated[Text, Field(max_length=200)] = Field(description="write the title of the dashboard")
    description: Long = ""
    range: Annotated[str, _word(RANGES)] = "1h"
    refresh: Annotated[str, _word(REFRESHES)] = "60s"
    variables: Annotated[tuple[Variable, ...], Field(max_length=MAX_VARIABLES)] = ()
    panels: Annotated[tuple[Panel, ...], Field(min_length=1, max_length=MAX_PANELS)] = Field(description="write panels")
    links: Annotated[tuple[Link, ...], Field(max_length=20)] = ()
    marks: Marks | None = None

    @model_validator(mode="after")
    def _check_queries(self) -> Self:
        """Refuse queries that cannot be parsed, and unknown variables."""
        raise_faults(self._faults())
        return self

    def _faults(self) -> Iterator[InitErrorDetails]:
        yield from repeated([(one.name, ("variables", at, "name")) for at, one in enumerate(self.variables)])
        known: dict[str, str] = dict(BUILT_IN)
        for at, variable in enumerate(self.variables):
            for key in ("series", "query"):
                if text := getattr(variable, key):
                    yield from _faults_of(text, known, variable.lang, ("variables", at, key), is_query=key == "query")
            known[variable.name] = variable.sample
        if self.marks and self.marks.starts:
            yield from _faults_of(self.marks.starts, known, "artimon", ("marks", "starts"))
        for at, event in enumerate(self.marks.queries if self.marks else ()):
            yield from _faults_of(event.q, known, event.lang, ("marks", "queries", at, "q"))
        names = [one.name for one in self.variables]
        for at, panel in enumerate(self.panels):
            if panel.repeat is not None and panel.repeat not in names:
                told = f"unknown variable {panel.repeat!r:.80}{did_you_mean(panel.repeat, names)}"
                yield fault(told, "panels", at, "repeat")
            for number, one in enumerate(panel.queries):
                yield from _faults_of(one.q, known, one.lang, ("panels", at, "queries", number, "q"))


def _faults_of(
    text: str, known: Mapping[str, str], lang: str, path: tuple[str | int, ...], *, is_query: bool = True
) -> Iterator[InitErrorDetails]:
    for found in REFERENCE.finditer(text):
        if (name := found[1] or found[2]) not in known:
            yield fault(f"unknown variable ${name}{did_you_mean(name, list(known))}", *path, offset=found.start())
            return
    if not is_query:
        return
    filled = REFERENCE.sub(lambda found: known[found[1] or found[2]], text)
    try:
        (parse_query if lang == "artimon" else parse_promql)(filled)
    except ValueError as problem:
        position = getattr(problem, "position", None) if filled == text else None
        yield fault(getattr(problem, "message", "") or str(problem), *path, offset=position)


def read_dashboard(text: str, file: str) -> Dashboard:
    """Return the dashboard of a YAML text; `file` is shown in errors. Raises ConfigFileError."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise ConfigFileError([ConfigProblem(file, 1, 1, f"more than {MAX_BYTES} bytes: split the dashboard")])
    found: ConfigFile = parse_config(text, file)
    return found.validate(Dashboard)


class _Dumper(yaml.SafeDumper):
    """Writer of YAML with long texts as blocks."""


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text_node)


def append_panel(text: str, panel: Mapping[str, Any], file: str) -> str:
    """Return the text of a dashboard with one more panel; its comments and layout stay.

    Raises ConfigFileError, and ValueError for a layout to which nothing can be added."""
    before = read_dashboard(text, file)
    root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    panels = next((value for key, value in root.value if key.value == "panels"), root)
    if panels.flow_style:
        at = panels.value[-1].end_mark.index
        found = f"{text[:at]}, {json.dumps(dict(panel), ensure_ascii=False)}{text[at:]}"
    else:
        at = panels.end_mark.index
        at = len(text) if not text[at:].strip() else text.rfind("\n", 0, at) + 1
        item = textwrap.indent(_dump([dict(panel)]), " " * panels.start_mark.column)
        found = f"{text[:at]}{'' if text[:at].endswith(chr(10)) else chr(10)}{item}{text[at:]}"
    if read_dashboard(found, file).panels[:-1] != before.panels:
        raise ValueError(f"{file}: no panel can be added to this layout: add it in the editor of the dashboard")
    return found


def write_yaml(data: Mapping[str, Any]) -> str:
    """Return a dashboard of plain data as YAML."""
    return _dump(dict(data))


def _dump(data: Any) -> str:
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
