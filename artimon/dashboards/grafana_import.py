"""Import of dashboards of Grafana: panels with PromQL become YAML, all else is listed with a reason."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import re2

from artimon.dashboards.dashboard_file import (
    BUILT_IN,
    COLUMNS,
    MAX_MARKS,
    MAX_PANELS,
    MAX_QUERIES,
    MAX_VARIABLES,
    RANGES,
    REFERENCE,
    read_dashboard,
    write_yaml,
)
from artimon.runtime.config_file import ConfigFileError
from artimon.runtime.text import parse_duration

MAX_JSON_BYTES = 8 << 20
MAX_READ = 4 * MAX_VARIABLES
"""Variables and annotations that are read: data sources and those that cannot be converted included."""
KINDS: Mapping[str, str] = {
    "timeseries": "chart", "graph": "chart", "stat": "value", "gauge": "value", "singlestat": "value",
    "bargauge": "bars", "barchart": "bars", "piechart": "bars", "grafana-piechart-panel": "bars",
    "grafana-polystat-panel": "value", "table": "table", "table-old": "table", "heatmap": "heatmap",
    "state-timeline": "states", "status-history": "states", "text": "text",
}  # fmt: skip
UNITS: Mapping[str, str] = {
    "bytes": "bytes", "decbytes": "bytes", "Bps": "bytes/s", "binBps": "bytes/s", "decbps": "bytes/s",
    "bps": "bits/s", "binbps": "bits/s", "percent": "percent", "percentunit": "ratio", "s": "s", "ms": "ms",
    "reqps": "/s", "ops": "/s", "rps": "/s", "wps": "/s", "iops": "/s", "cps": "/s",
    "pps": "/s", "eps": "/s", "qps": "/s", "none": "", "short": "", "": "",
}  # fmt: skip
REDUCTIONS: Mapping[str, str] = {
    "lastNotNull": "last", "last": "last", "current": "last", "mean": "mean", "avg": "mean", "min": "min",
    "max": "max", "sum": "sum", "total": "sum",
}  # fmt: skip
STATES: Mapping[str, str] = {"green": "good", "yellow": "warn", "orange": "warn", "red": "bad"}
_LABEL_VALUES = re.compile(r"\s*label_values\(\s*(?:(.+)\s*,\s*)?([A-Za-z_][A-Za-z0-9_]*)\s*\)\s*", re.DOTALL)
_RESULT = re.compile(r"\s*query_result\((.+)\)\s*", re.DOTALL)
_OF_LABEL = re.compile(r'/?\.?\*?\b([A-Za-z_]\w*)=\\?"\((?:\.\*|\.\*\?|\.\+|\[\^"\][*+])\).*')
"""Regular expression of a variable that takes the value of one label out of the text of a series."""
_REGEX = re.compile(r"/(.*)/([gimsuy]*)", re.DOTALL)
GROUP = "variable_value"
"""Label with the part of a value that a regular expression takes."""
_FORMATTED = re.compile(r"\$\{([A-Za-z_]\w*):[a-z]+\}|\[\[([A-Za-z_]\w*)(?::[a-z]+)?\]\]")
_WHOLE = re.compile(r"""(?<![=!<>])(!?=)(\s*(["'])\$(?:\{(\w+)\}|(\w+))\3)""")
"""Matcher of equality whose value is a variable."""
_LEGEND = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
_ALERTS = re.compile(r"""(?<![\w:"'])ALERTS(?![\w:"'])""")
"""Series of Prometheus in the query of an annotation: its alerts."""
_FIRING = ('ALERTS{alertstate="firing"}', 'ALERTS{alertstate=~"firing"}')
_MISSING = ("null", "nan", "null+nan", "empty")


@dataclass(frozen=True, slots=True)
class GrafanaImport:
    """Text of a dashboard, and what could not be converted."""

    text: str
    problems: list[str]


def import_grafana(text: str) -> GrafanaImport:
    """Return the dashboard of a JSON text of Grafana. Raises ValueError."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_JSON_BYTES:
        raise ValueError(f"more than {MAX_JSON_BYTES} bytes: split the dashboard")
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as problem:
        raise ValueError(f"not JSON: {problem}: export the dashboard of Grafana as JSON") from None
    model = _map(data.get("dashboard")) or data if isinstance(data, dict) else {}
    if not isinstance(model.get("panels"), list) and not isinstance(model.get("rows"), list):
        raise ValueError("not a dashboard of Grafana: it has no panels")
    return _Importer(model).convert()


def _matched(selector: str, label: str, pattern: str) -> dict[str, Any] | None:
    """Return a variable that offers the values of a label which match a regular expression of JavaScript, or its first
    group. None if RE2 has no such expression."""
    given = _REGEX.fullmatch(pattern)
    whole = pattern
    if given:
        whole = f".*?({'?i' if 'i' in given[2] else '?'}:{given[1]}).*"
    try:
        groups = re2.compile(whole).groups
    except re2.error:
        return None
    if "(?<" in whole or "(?P<" in whole or REFERENCE.search(whole):
        return None
    quoted = json.dumps(whole, ensure_ascii=False)
    head, braces, matchers = selector.partition("{")
    inner = matchers.rstrip().removesuffix("}").rstrip().rstrip(",")
    if braces and not matchers.rstrip().endswith("}"):
        return None
    one = f"{head.strip()}{{{inner}{', ' if inner.strip() else ''}{label}=~{quoted}}}"
    if not groups:
        return {"label": label, "query": one, "lang": "promql"}
    group = f'label_replace(group by ({label}) ({one}), "{GROUP}", "$1", "{label}", {quoted})'
    return {"label": GROUP, "query": f"group by ({GROUP}) ({group})", "lang": "promql"}


def _map(given: Any) -> Mapping[str, Any]:
    return given if isinstance(given, dict) else {}


def _maps(given: Any) -> list[Mapping[str, Any]]:
    return [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []


def _text(given: Any, most: int = 200) -> str:
    return given[:most] if isinstance(given, str) else ""


@dataclass(slots=True)
class _Importer:
    model: Mapping[str, Any]
    problems: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    many: set[str] = field(default_factory=set)
    """Variables that take several values."""

    def convert(self) -> GrafanaImport:
        made: dict[str, Any] = {"title": _text(self.model.get("title")).strip() or "Imported dashboard"}
        if about := _text(self.model.get("description"), 10_000):
            made["description"] = about
        made["range"] = self._range()
        made["refresh"] = "60s" if self.model.get("refresh") else "off"
        variables = list(self._variables())
        panels = [found for one in self._flat() if (found := self._panel(one)) is not None]
        if links := list(self._links(self.model, "the dashboard")):
            made["links"] = links
        if variables:
            made["variables"] = variables
        if marks := self._marks(made):
            made["marks"] = marks
        if len(panels) > MAX_PANELS:
            self.problems.append(f"{len(panels) - MAX_PANELS} panels beyond {MAX_PANELS} were left out")
        none = {"kind": "text", "title": "Empty", "text": "No panel could be converted."}
        made["panels"] = self._valid(made, panels[:MAX_PANELS]) or [none]
        return GrafanaImport(write_yaml(made), self.problems)

    def _valid(self, made: Mapping[str, Any], panels: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the panels whose queries are accepted; the others are listed."""
        kept: list[dict[str, Any]] = []
        for panel in panels:
            try:
                read_dashboard(write_yaml({**made, "panels": [panel]}), "import")
                kept.append(panel)
            except ConfigFileError as problem:
                self._left_out(panel.get("title") or "untitled", problem.problems[0].text)
        return kept

    def _marks(self, made: Mapping[str, Any]) -> dict[str, Any]:
        """Return the marks of the annotations that can be converted; the others are listed. The one of every dashboard,
        of notes in Grafana itself, is left out."""
        marks: dict[str, Any] = {}
        queries: list[dict[str, Any]] = []
        given = [one for one in _maps(_map(self.model.get("annotations")).get("list")) if not one.get("builtIn")]
        if len(given) > MAX_READ:
            self.problems.append(f"{len(given) - MAX_READ} annotations beyond {MAX_READ} were left out")
        for one in given[:MAX_READ]:
            name, text = _text(one.get("name")), _text(one.get("expr") or _map(one.get("target")).get("expr"), 10_001)
            query = self._several(self._plain(text)).strip()
            problem = self._mark_problem(one, query)
            if not problem and _ALERTS.search(query):
                marks["alerts"] = True
                if "".join(query.split()).replace("'", '"') not in _FIRING:
                    problem = "alerts of all rules and series are marked"
            elif not problem:
                title = _LEGEND.sub(r"{\1}", self._plain(_text(one.get("titleFormat")))) or name
                event = {"q": query, "lang": "promql", "title": title}
                problem = self._mark_refusal(made, event, len(queries))
                queries += [] if problem else [event]
            if problem:
                self.problems.append(f"annotation {name!r:.80}: {problem}")
        return {**marks, **({"queries": queries} if queries else {})}

    @staticmethod
    def _mark_refusal(made: Mapping[str, Any], event: Mapping[str, Any], count: int) -> str:
        """Return the reason why marks with `count` queries do not take another one; empty if they do."""
        if count == MAX_MARKS:
            return f"a dashboard has at most {MAX_MARKS} queries of marks"
        whole = {**made, "panels": [{"kind": "text"}], "marks": {"queries": [event]}}
        try:
            read_dashboard(write_yaml(whole), "import")
        except ConfigFileError as refused:
            return refused.problems[0].text
        return ""

    def _mark_problem(self, one: Mapping[str, Any], query: str) -> str:
        """Return the reason why an annotation cannot be converted; empty if it can."""
        source = one.get("datasource")
        kind = (source.get("type") if isinstance(source, dict) else source) or "unknown"
        if not query or kind == "loki":
            return f"no query in PromQL, but the data source {kind!s:.40}"
        if len(query) > 10_000:
            return "a query of more than 10,000 characters"
        if one.get("enable") is False:
            return "it is switched off"
        if one.get("useValueForTime"):
            return "times in values are not supported"
        unknown = self._unknown(query)
        return f"it needs the variable ${unknown}" if unknown else ""

    def _left_out(self, title: str, reason: str) -> None:
        self.problems.append(f"panel {title!r:.80}: {reason}")

    def _range(self) -> str:
        found = re.fullmatch(r"now-(\d+[smhdw])", _text(_map(self.model.get("time")).get("from")))
        wanted = parse_duration(found[1]) if found else 3_600_000
        chosen = next((one for one in RANGES if parse_duration(one) >= wanted), RANGES[-1])
        if parse_duration(chosen) != wanted:
            self.problems.append(f"range {found[1] if found else 'unknown'}: {chosen} instead")
        return chosen

    def _variables(self) -> Iterator[dict[str, Any]]:
        kept: list[dict[str, Any]] = []
        given = _maps(_map(self.model.get("templating")).get("list"))
        if len(given) > MAX_READ:
            self.problems.append(f"{len(given) - MAX_READ} variables beyond {MAX_READ} were left out")
        for one in _by_use(given[:MAX_READ]):
            name, kind = _text(one.get("name")), one.get("type")
            if kind == "datasource":
                continue  # there is one source here
            found = self._variable(name, one)
            if found is None:
                continue
            whole = {"title": "t", "variables": [*kept, found], "panels": [{"kind": "text"}]}
            try:
                read_dashboard(write_yaml(whole), "import")
            except ConfigFileError as problem:
                self.problems.append(f"variable {name!r:.80}: {problem.problems[0].text}")
                continue
            if len(kept) == MAX_VARIABLES:
                self.problems.append(f"variable {name!r:.80}: a dashboard has at most {MAX_VARIABLES}")
                continue
            self.names.add(name)
            if found.get("multi"):
                self.many.add(name)
            kept.append(found)
            yield found

    def _variable(self, name: str, one: Mapping[str, Any]) -> dict[str, Any] | None:
        kind, made = one.get("type"), {"name": name}
        if label := _text(one.get("label")):
            made["title"] = label
        now = _map(one.get("current")).get("value")
        chosen = [_text(value) for value in (now if isinstance(now, list) else [now]) if isinstance(value, str)]
        default = [value for value in chosen if value and not value.startswith("$__")]
        many: dict[str, Any] = {"multi": True} if one.get("multi") or one.get("includeAll") else {}
        if many and (every := _text(one.get("allValue"))):
            many["all"] = every
        if kind == "query":
            query = one.get("query")
            text = _text(_map(query).get("query") if isinstance(query, dict) else query, 10_000)
            found = self._queried(name, text, _text(one.get("regex"), 1_000))
            if found is None:
                told = "only label_values(…), and query_result(…) with the regular expression of a label, are converted"
                self.problems.append(f"variable {name!r:.80}: {told}: it became a text")
                default = default[:1] or ([".*"] if one.get("includeAll") else [])
                return {**made, **({"default": default} if default else {})}
            return {**made, **found, **many}
        if kind in ("custom", "interval"):
            texts = [part.strip().rpartition(" : ")[2] for part in _text(one.get("query"), 10_000).split(",")]
            values = [value for value in texts if value and value != "auto"]
            if kind == "interval" and len(values) != len(texts):
                self.problems.append(f"variable {name!r:.80}: the value auto was left out")
            if kind == "interval" and not default and "5m" in values:
                default = ["5m"]
            return {**made, "values": values, **({"default": default} if default else {}), **many}
        if kind in ("constant", "textbox"):
            value = _text(one.get("query")) or next(iter(default), "")
            return {**made, **({"default": [value]} if value else {})}
        self.problems.append(f"variable {name!r:.80}: the type {kind!r:.40} is not supported")
        return None

    def _queried(self, name: str, query: str, pattern: str) -> dict[str, Any] | None:
        query = self._several(self._plain(query))
        if found := _LABEL_VALUES.fullmatch(query):
            of, label = found[1], found[2]
            matched = _matched(of.strip(), label, pattern) if of and pattern else None
            if pattern and matched is None:
                self.problems.append(
                    f"variable {name!r:.80}: its regular expression is left out: all values are offered"
                )
            return matched or {"label": label, **({"query": of.strip(), "lang": "promql"} if of else {})}
        result, label_of = _RESULT.fullmatch(query), _OF_LABEL.fullmatch(pattern)
        if result and label_of:
            return {"label": label_of[1], "query": result[1].strip(), "lang": "promql"}
        return None

    def _plain(self, text: str) -> str:
        """Return a text with the plain form of variables."""
        return _FORMATTED.sub(lambda found: f"${{{found[1] or found[2]}}}", text)

    def _several(self, query: str) -> str:
        """Return a query whose matchers of equality with a variable of several values are regular expressions."""

        def matched(found: re.Match[str]) -> str:
            op = found[1] if (found[4] or found[5]) not in self.many else {"=": "=~", "!=": "!~"}[found[1]]
            return f"{op}{found[2]}"

        return _WHOLE.sub(matched, query)

    def _flat(self) -> Iterator[Mapping[str, Any]]:
        """Yield the panels in their order, those within rows too; a row becomes a line of text."""
        rows = [{**row, "type": "row"} for row in _maps(self.model.get("rows"))]  # before version 5
        for panel in [*_maps(self.model.get("panels")), *rows]:
            yield panel
            if panel.get("type") == "row":
                yield from _maps(panel.get("panels"))

    def _panel(self, one: Mapping[str, Any]) -> dict[str, Any] | None:
        kind, title = one.get("type"), self._plain(_text(one.get("title")))
        if kind == "row":
            if one.get("repeat"):
                self._left_out(title, "a row that is repeated is shown once")
            return {"kind": "text", "title": title, "text": "", "width": COLUMNS, "height": 1} if title else None
        if str(kind) not in KINDS:
            self._left_out(title, f"the type {kind!r:.40} is not supported")
            return None
        made: dict[str, Any] = {"title": title, "kind": KINDS[str(kind)]}
        if about := _text(one.get("description"), 10_000):
            made["description"] = about
        if made["kind"] == "text":
            content = _text(_map(one.get("options")).get("content") or one.get("content"), 10_000)
            mode = _map(one.get("options")).get("mode") or one.get("mode")
            if mode in ("html", "markdown"):
                self._left_out(title, f"{mode} is shown as plain text")
            made["text"] = self._plain(content)
        else:
            made["queries"] = list(self._queries(title, one))
            if not made["queries"]:
                self._left_out(title, "no query in PromQL")
                return None
            self._looks(title, one, made)
        made |= self._place(one)
        if repeat := _text(one.get("repeat")):
            if repeat in self.names:
                made["repeat"] = repeat
            else:
                self._left_out(title, f"it is repeated by the variable {repeat!r:.40}, which is missing")
        if links := list(self._links(one, title)):
            made["links"] = links
        for key in ("transformations", "alert"):
            if one.get(key):
                self._left_out(title, f"{key} are not supported")
        return made

    def _place(self, one: Mapping[str, Any]) -> dict[str, int]:
        grid = _map(one.get("gridPos"))
        width, height = grid.get("w", _number(one.get("span"), 6) * 2), grid.get("h", 8)
        return {"width": _between(width, 2, COLUMNS, 12), "height": _between(height, 1, 40, 8)}

    def _queries(self, title: str, one: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        targets = _maps(one.get("targets"))
        if len(targets) > MAX_QUERIES:
            self._left_out(title, f"only {MAX_QUERIES} of {len(targets)} queries are converted")
        for target in targets[:MAX_QUERIES]:
            query = self._several(self._plain(_text(target.get("expr"), 10_001)))
            if not query.strip():
                kind = _map(target.get("datasource")).get("type") or "unknown"
                self._left_out(title, f"query {target.get('refId', '?')!s:.20} of the data source {kind!s:.40}")
            elif len(query) > 10_000:
                self._left_out(title, "a query of more than 10,000 characters")
            elif target.get("hide"):
                self._left_out(title, f"query {target.get('refId', '?')!s:.20} is hidden")
            elif unknown := self._unknown(query):
                self._left_out(title, f"query {target.get('refId', '?')!s:.20} needs the variable ${unknown}")
            else:
                legend = _LEGEND.sub(r"{\1}", self._plain(_text(target.get("legendFormat"))))
                yield {
                    "q": query.strip(),
                    "lang": "promql",
                    **({"legend": legend} if legend not in ("", "__auto") else {}),
                }

    def _unknown(self, query: str) -> str:
        known = {*self.names, *BUILT_IN}
        names = [found[1] or found[2] for found in REFERENCE.finditer(query)]
        return next((name for name in names if name not in known), "")

    def _looks(self, title: str, one: Mapping[str, Any], made: dict[str, Any]) -> None:
        """Add unit, range, thresholds, names of values and the reduction."""
        defaults, options = _map(_map(one.get("fieldConfig")).get("defaults")), _map(one.get("options"))
        axis = next(iter(_maps(one.get("yaxes"))), {})
        unit = defaults.get("unit", axis.get("format", one.get("format", "")))
        if isinstance(unit, str) and unit in UNITS:
            made |= {"unit": UNITS[unit]} if UNITS[unit] else {}
        else:
            self._left_out(title, f"the unit {unit!r:.40} is not known")
        made |= {key: float(defaults[key]) for key in ("min", "max") if isinstance(defaults.get(key), int | float)}
        calls = _map(options.get("reduceOptions")).get("calcs") or [one.get("valueName") or "lastNotNull"]
        call = calls[0] if isinstance(calls, list) and calls else ""
        if made["kind"] in ("value", "bars", "table"):
            if str(call) in REDUCTIONS:
                made["reduce"] = REDUCTIONS[str(call)]
            else:
                self._left_out(title, f"the calculation {call!r:.40} is not known: the last value is shown")
        steps = _map(defaults.get("thresholds"))
        if steps.get("mode") == "percentage":
            self._left_out(title, "thresholds in percent of the range are not supported")
        elif found := list(_thresholds(_maps(steps.get("steps")))):
            made["thresholds"] = found
        if names := list(self._names(title, _maps(defaults.get("mappings")))):
            made["names"] = names
        if _maps(_map(one.get("fieldConfig")).get("overrides")):
            self._left_out(title, "overrides of fields are not supported")

    def _names(self, title: str, mappings: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        for mapping in mappings:
            if mapping.get("type") == "special" and _map(mapping.get("options")).get("match") in _MISSING:
                continue  # what is missing is shown as missing
            if mapping.get("type") != "value":
                self._left_out(title, f"a mapping of the type {mapping.get('type')!r:.40} is not supported")
                continue
            for value, shown in _map(mapping.get("options")).items():
                text = _text(_map(shown).get("text"))
                try:
                    number = float(value)
                except ValueError:
                    self._left_out(title, f"the mapping of {value!r:.40} is not one of a number")
                    continue
                if text:
                    state = _state(_map(shown).get("color"))
                    yield {"value": number, "text": text, **({"state": state} if state else {})}

    def _links(self, one: Mapping[str, Any], title: str) -> Iterator[dict[str, Any]]:
        for link in _maps(one.get("links")):
            url, name = self._plain(_text(link.get("url"), 2_000)), self._plain(_text(link.get("title")))
            made = {"title": name or url[:200], "url": url}
            try:
                read_dashboard(write_yaml({"title": "t", "links": [made], "panels": [{"kind": "text"}]}), "import")
            except ConfigFileError:
                self._left_out(title, f"the link {name!r:.40}: only addresses of the web are converted")
                continue
            yield made


def _by_use(variables: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the variables so that each comes after those that its query uses; those in a circle last."""
    waiting = [(_text(one.get("name")), _used(one), one) for one in variables]
    while waiting:
        names = {name for name, _, _ in waiting}
        is_free = [not (used & names - {name}) for name, used, _ in waiting]
        free = is_free if any(is_free) else [True] * len(waiting)
        yield from (one for (_, _, one), chosen in zip(waiting, free, strict=True) if chosen)
        waiting = [one for one, chosen in zip(waiting, free, strict=True) if not chosen]


def _used(variable: Mapping[str, Any]) -> set[str]:
    text = json.dumps([variable.get("query"), variable.get("definition")])
    return {found[1] or found[2] for found in REFERENCE.finditer(_FORMATTED.sub(r"${\1\2}", text))}


def _thresholds(steps: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the steps with a number; the first one is the state of all values below."""
    for step in steps:
        value, state = step.get("value"), _state(step.get("color"))
        if not state:
            continue
        if isinstance(value, int | float):
            yield {"above": float(value), "state": state}
        elif state != "good" and len(steps) > 1 and isinstance(steps[1].get("value"), int | float):
            yield {"below": float(steps[1]["value"]), "state": state}


def _state(colour: Any) -> str:
    name = re.sub(r"^(semi-|super-)?(dark|light)-", "", colour) if isinstance(colour, str) else ""
    return STATES.get(name, "")


def _number(given: Any, otherwise: float) -> float:
    return given if isinstance(given, int | float) else otherwise


def _between(given: Any, low: int, high: int, otherwise: int) -> int:
    return int(max(low, min(high, _number(given, otherwise))))
