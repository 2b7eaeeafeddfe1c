"""Imported dashboards of Grafana show what Prometheus answers to the same queries, panel by panel.

The page's own modules resolve the variables and ask the API, in a browser, over shards; Prometheus holds the same
samples, one a minute, and is asked what Grafana would send. The public dashboards are compared if
`python -m scripts.grafana_dashboards` has fetched them; `pytest -s` prints the table of docs/dashboards.md.
"""

from __future__ import annotations

import json
import math
import re
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from artimon.dashboards.dashboard_file import Dashboard, Variable, read_dashboard
from artimon.dashboards.grafana_import import import_grafana
from artimon.model.batch import SeriesBlock, SeriesInfo
from artimon.model.clock import ManualClock
from artimon.model.labels import canonical
from artimon.model.values import Kind
from benchmarks.peers.prometheus import Prometheus
from benchmarks.peers.series import PeerSeries
from scripts.grafana_dashboards import cache_folder, listed
from tests.api.serving import served
from tests.chromium import chromium
from tests.dashboards.grafana_panels import Chosen, GrafanaPanel, Series, filled, panels_of, prometheus_answer
from tests.dashboards.grafana_world import ENTITIES, MINUTE_MS, Metrics, usual_value
from tests.programs import require
from tests.query_dsl.pushing import Together
from tests.query_dsl.test_pushdown import Told, feed, type_of
from varstore.shard.shard import Shard

pytestmark = [pytest.mark.programs, pytest.mark.timeout(900)]
END_MS = 1_800_000_000_000
NOW_MS = END_MS + 20_000
CLOSE, CANCELLED = 1e-9, 1e-11
SHARE = 0.9
BATCH = 2_000
EQUAL = re.compile(r'[^=!<>~]=\s*"\$\{?(\w+)\}?"')
"""Matcher of equality with a variable."""
BUILT_IN_VALUES = {"__interval": Chosen(("60s",)), "__rate_interval": Chosen(("300s",)), "__range": Chosen(("3600s",))}
"""Those of the page for an hour."""
ASK = """async ({variables, panels, now, one}) => {
  const {resolved} = await import('./static/dashboard_variables.js');
  const {builtIn, filled, Round} = await import('./static/dashboard_values.js');
  const {Increments} = await import('./static/increments.js');
  const {spanOf} = await import('./static/time_range.js');
  const round = new Round(new AbortController().signal, spanOf('1h', now), new Increments());
  const {chosen, problems} = await resolved(variables, round, (name) => one[name] ?? []);
  const every = {...builtIn(round.span), ...chosen};
  const asked = panels.map((queries) => Promise.all(queries.map(async ({q, lang}) => {
    try {
      const {grid, series} = await round.matrix(filled(q, lang, every), lang);
      const text = (one) => typeof one === 'number' && !Number.isFinite(one) ? String(one) : one;
      return {grid, series: series.map((one) => ({...one, values: one.values.map(text)}))};
    } catch (error) { return {error: String(error.message)}; }
  })));
  return {chosen: every, problems, panels: await Promise.all(asked)};
}"""
"""Answers of a dashboard as its page gets them. Infinities and NaN become texts."""


@dataclass(slots=True)
class Board:
    """Dashboard to compare. `converted` has None for a panel that was not converted; `why`: the reason by title."""

    name: str
    panels: list[GrafanaPanel]
    variables: Sequence[Mapping[str, Any]]
    dashboard: Dashboard
    converted: Sequence[tuple[Mapping[str, str], ...] | None]
    why: list[str]
    outcomes: list[str] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)


def board_of(name: str, text: str) -> Board:
    """Import a dashboard, and each of its panels alone."""
    model = json.loads(text)
    model = model.get("dashboard") or model
    whole = read_dashboard(import_grafana(text).text, name)
    panels, converted, why = list(panels_of(model)), [], []
    for panel in panels:
        alone = {**{key: model.get(key) for key in ("templating", "title")}, "panels": [{**panel.model, "panels": []}]}
        told = import_grafana(json.dumps(alone))
        made = read_dashboard(told.text, name).panels[0]
        is_there = made.kind != "text"
        converted.append(tuple({"q": one.q, "lang": one.lang} for one in made.queries) if is_there else None)
        why.append("" if is_there else next((one for one in told.problems if one.startswith("panel")), "no reason"))
    variables = (model.get("templating") or {}).get("list") or []
    return Board(name, panels, variables, whole, converted, why)


def world_of(boards: Sequence[Board]) -> list[PeerSeries]:
    """Return the series that the boards ask for."""
    metrics = Metrics()
    for board, entity in product(boards, range(ENTITIES)):
        values = dict(BUILT_IN_VALUES)
        for variable in board.dashboard.variables:
            query = filled(variable.query or "", values)
            values[variable.name] = Chosen((value_of(variable, query, entity),))
            if query:
                metrics.add(f"group by ({variable.label}) ({query})", entity, ())
        likely = [value for one in values.values() for value in one.values]
        for panel in board.panels:
            for query in panel.queries:
                metrics.add(filled(query, values), entity, likely)
    return list(metrics.series(END_MS))


def value_of(variable: Variable, query: str, entity: int) -> str:
    """Return the value of a variable that belongs to an entity."""
    if not variable.label:
        return next(iter((*variable.default, *variable.values)), "")
    found = re.search(r'"\$1", "(\w+)", "((?:[^"\\]|\\.)*)"\)\)$', query)
    if found is None:
        return usual_value(variable.label, entity)
    part = re.fullmatch(json.loads(f'"{found[2]}"'), usual_value(found[1], entity))
    return part[1] if part else ""


def shards_of(series: Sequence[PeerSeries]) -> Together:
    """Return two shards that hold the series."""
    told = [
        Told(
            one.name,
            tuple(sorted(one.labels.items())),
            Kind.UNKNOWN,
            tuple(
                (int(at), int(one.times_ms[0]) - MINUTE_MS, int(value) if one.integer else float(value))
                for at, value in zip(one.times_ms, one.values, strict=True)
            ),
            f"s{i // BATCH}",
            i // BATCH,
        )
        for i, one in enumerate(series)
    ]
    shards = [Shard(str(i), capacity=len(told) + 100) for i in range(2)]
    for i, shard in enumerate(shards):
        mine = [one for one in told if one.shard % 2 == i]
        for source in sorted({one.source for one in mine}):
            infos = [
                SeriesInfo(canonical(one.name, dict(one.labels)), type_of(one), one.kind)
                for one in mine
                if one.source == source
            ]
            for block, first in enumerate(range(0, len(infos), 1_000)):
                shard.announce(SeriesBlock(source, block, 1, tuple(infos[first : first + 1_000])))
        feed(shard, mine)
    return Together(shards)


def answers(page: Page, board: Board) -> Any:
    """Ask the queries of all panels in the page. Not the author's values are chosen, but the first one, and every one
    of a variable with several; of those that queries compare with `=` one, with which Grafana shows something."""
    variables = [{**one.model_dump(), **({"default": []} if one.label else {})} for one in board.dashboard.variables]
    panels = [list(queries or ()) for queries in board.converted]
    queries = [query for panel in board.panels for query in panel.queries]
    compared = {found[1] for query in queries for found in EQUAL.finditer(query)}
    many = [one for one in board.dashboard.variables if one.multi and one.name in compared]
    single = {one.name: [usual_value(one.label or "", 0)] for one in many}
    told = {"variables": variables, "panels": panels, "now": NOW_MS, "one": single}
    return page.evaluate(ASK, told)


def chosen_of(told: Mapping[str, Any], board: Board) -> dict[str, Chosen]:
    """Return the values that the page has chosen, for Grafana."""
    all_values = {str(one.get("name")): str(one.get("allValue") or "") for one in board.variables}
    return {
        name: Chosen(tuple(one["values"]), one["all"], one["multi"], all_values.get(name, ""))
        for name, one in told.items()
    }


def ours(found: Mapping[str, Any]) -> Series | str:
    if "error" in found:
        return str(found["error"])
    start, step = found["grid"]["start_ms"], found["grid"]["step_ms"]
    return {
        tuple(sorted({**one["labels"], **({"__name__": one["name"]} if one["name"] else {})}.items())): {
            start + (i + 1) * step: float(value) for i, value in enumerate(one["values"]) if value is not None
        }
        for one in found["series"]
    }


def close(a: float, b: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or abs(a - b) <= max(CLOSE * max(abs(a), abs(b)), CANCELLED)


def difference(mine: Series | str, expected: Series | str) -> str:
    """Return the first difference, "" if there is none. Two errors are equal."""
    if isinstance(mine, str) or isinstance(expected, str):
        return "" if isinstance(mine, str) and isinstance(expected, str) else f"ours {mine!s:.200}, {expected!s:.200}"
    if mine.keys() != expected.keys():
        return f"{len(mine)} series, not {len(expected)}: {sorted(mine.keys() ^ expected.keys())[:2]}"
    for key, points in expected.items():
        if mine[key].keys() != points.keys():
            return f"{key}: {len(mine[key])} points, not {len(points)}"
        for at, value in points.items():
            if not close(mine[key][at], value):
                return f"{key} at {at}: {mine[key][at]!r}, not {value!r}"
    return ""


def compare(board: Board, told: Any, address: str) -> None:
    """Fill the outcomes: equal, empty, refused, different, or not converted, one of each panel."""
    chosen, step = chosen_of(told["chosen"], board), MINUTE_MS // 1000
    grid = {"start": END_MS // 1000 - 59 * step, "end": END_MS // 1000, "step": step}
    for panel, queries, why, found in zip(board.panels, board.converted, board.why, told["panels"], strict=True):
        if queries is None:
            board.outcomes.append("not converted")
            board.rest.append(f"{panel.title}: not converted: {why}")
            continue
        expected = [prometheus_answer(address, filled(query, chosen), grid) for query in panel.queries]
        mine = [ours(one) for one in found]
        if len(mine) != len(expected):
            told_of = f"{len(mine)} of {len(expected)} queries"
        else:
            told_of = next((text for pair in zip(mine, expected, strict=True) if (text := difference(*pair))), "")
        if told_of:
            board.outcomes.append("different")
            board.rest.append(f"{panel.title}: {told_of}")
        elif any(isinstance(one, dict) and one for one in expected):
            board.outcomes.append("equal")
        else:
            is_refused = all(isinstance(one, str) for one in expected)
            board.outcomes.append("refused" if is_refused else "empty")
            board.rest.append(
                f"{panel.title}: {'both refuse' if is_refused else 'both are empty'}: {expected[:1]!s:.200}"
            )


def compared(boards: list[Board], folder: Path) -> Iterator[list[Board]]:
    series = world_of(boards)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    peer = Prometheus(require("prometheus"), require("promtool"), folder, port)
    peer.store(series)
    with (
        peer.serve() as address,
        served(shards_of(series), clock=ManualClock(NOW_MS)) as client,
        chromium() as browser,
    ):
        page = browser.new_page()
        page.set_default_timeout(300_000)
        page.goto(f"http://127.0.0.1:{client.port}/dashboards")
        for board in boards:
            compare(board, answers(page, board), address)
        yield boards


def table_of(boards: Sequence[Board]) -> str:
    """Return the counts as Markdown."""
    kinds = ("equal", "empty", "refused", "different", "not converted")
    lines = [f"| dashboard | panels | {' | '.join(kinds)} |", f"| --- |{' --- |' * (len(kinds) + 1)}"]
    every: Counter[str] = Counter()
    for board in boards:
        counts = Counter(board.outcomes)
        every += counts
        lines.append(f"| {board.name} | {len(board.outcomes)} | {' | '.join(str(counts[kind]) for kind in kinds)} |")
    lines.append(f"| all | {every.total()} | {' | '.join(str(every[kind]) for kind in kinds)} |")
    rest = [f"{board.name}: {one}" for board in boards for one in board.rest]
    return "\n".join([*lines, "", *rest])


def panel(*queries: str, **more: object) -> dict[str, object]:
    """Return a panel of Grafana."""
    return {"type": "timeseries", "title": queries[0], "targets": [{"expr": query} for query in queries], **more}


def variable(name: str, query: str, **more: object) -> dict[str, object]:
    """Return a variable of Grafana."""
    return {"name": name, "type": "query", "query": {"query": query}, **more}


OWN = {
    "title": "Own",
    "templating": {
        "list": [
            variable(
                "device", 'label_values(disk_bytes{instance=~"$host:$port"}, device)', multi=True, includeAll=True
            ),
            variable("job", "label_values(up, job)", includeAll=True, allValue=".+"),
            variable("host", 'label_values(up{job=~"$job"}, instance)', regex="/([^:]+):.*/"),
            variable("port", 'label_values(up{instance=~"$host:(.*)"}, instance)', regex="/[^:]+:(.*)/"),
            variable("mount", "label_values(fs_free, mount)", regex="/mount-[01]/", multi=True, includeAll=True),
            {"name": "window", "type": "interval", "query": "auto,2m,5m", "current": {"value": "2m"}},
            {"name": "code", "type": "custom", "query": "200,500", "multi": True},
        ]
    },
    "panels": [
        panel('up{job=~"$job"}', 'up{instance="$host:$port"} == 1'),
        panel('sum by (device) (rate(disk_bytes{device=~"${device:regex}"}[$__rate_interval]))'),
        panel('max_over_time(fs_free{mount=~"$mount"}[$window])', type="table"),
        panel('count(fs_free{mount!~"$mount"})', type="stat"),
        {"type": "row", "panels": [panel('sum(increase(requests_total{code=~"$code"}[$__range])) by (code)')]},
        panel("histogram_quantile(0.9, sum by (le, job) (rate(seconds_bucket[$__rate_interval])))", type="gauge"),
        panel('fs_free{mount="mount-0"} / on(instance) group_left fs_size{mount="mount-0"}', type="bargauge"),
    ],
}
"""Dashboard with each form of variables and their uses."""


def test_panels_of_an_own_dashboard_show_what_prometheus_shows(tmp_path: Path) -> None:
    for done in compared([board_of("own", json.dumps(OWN))], tmp_path):
        assert done[0].outcomes == ["equal"] * 7, done[0].rest


@pytest.mark.slow
def test_panels_of_public_dashboards_show_what_prometheus_shows(tmp_path: Path) -> None:
    folder = cache_folder()
    missing = [one.file for one in listed() if not (folder / one.file).is_file()]
    if missing:
        pytest.skip(f"{len(missing)} dashboards are not here: `python -m scripts.grafana_dashboards` fetches them")
    texts = [(one.path.rpartition("/")[2].removesuffix(".json"), folder / one.file) for one in listed()]
    boards = [board_of(name, path.read_text(encoding="utf-8")) for name, path in texts]
    for done in compared(boards, tmp_path):
        print(table_of(done))
        outcomes = Counter(one for board in done for one in board.outcomes)
        assert len(done) >= 20
        assert outcomes["equal"] >= SHARE * outcomes.total()
