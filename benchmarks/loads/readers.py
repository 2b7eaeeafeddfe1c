"""Readers of the series of `benchmarks.loads.samples`: users with boards of panels, and alert rules."""

from __future__ import annotations

import json

from artimon.model.clock import SYSTEM_CLOCK
from benchmarks.loads.dashboards import requests_of
from benchmarks.loads.samples import NAME, SERIES_A_SOURCE
from benchmarks.serving.racks import Refresh, browse

USERS_A_BOARD = 2
PAUSE_S = 10.0
AGE_S = 120
"""Age in seconds that the page accepts, `SHARED_S` of dashboard_values.js."""
_FLEET = ("rate('5m').sum(by=[])", "rate('5m').topk(10, by=[])", "rate('5m').quantile(0.95, by=[])", "max(by=[])")
VARIABLES = 3
"""Variables of a board, each with the panels of `_FLEET` over the whole fleet."""
HOSTS = 8
"""Panels of a board with the rate of a single host."""
RULES_A_FLEET_RULE = 4
"""Every fourth rule reads the whole fleet, the others a single series."""


def variable(number: int) -> str:
    """Return the name of a counter: four in five variables of the load are integers that grow."""
    counters = SERIES_A_SOURCE // 5 * 4
    return f"{NAME}{number % counters // 4 * 5 + number % 4 + 1}"


def host_series(name: str, host: int, sources: int) -> str:
    """Return the selector of one series."""
    return f'{name}{{host="host-{host % sources:04d}"}}'


def load_board(number: int, sources: int, now_ms: int, before_ms: int | None) -> list[str]:
    """Return the requests of the 20 panels of board `number`; `before_ms` as in `dashboards.board`."""
    names = [variable(VARIABLES * number + i) for i in range(VARIABLES)]
    texts = [f"fetch('{name}').{panel}" for name in names for panel in _FLEET]
    hosts = [host_series(names[i % VARIABLES], 37 * (HOSTS * number + i), sources) for i in range(HOSTS)]
    return requests_of([*texts, *(f"fetch('{one}').rate('5m')" for one in hosts)], now_ms, before_ms)


def refresh_boards(place: str, sources: int, users: int, seconds: float) -> tuple[list[Refresh], str]:
    """Let users refresh their boards for that time; return all refreshes, and the first refused answer."""
    before = dict[int, int]()

    def paths(user: int) -> list[str]:
        now_ms = SYSTEM_CLOCK.now_ms()
        found = load_board(user // USERS_A_BOARD, sources, now_ms, before.get(user))
        before[user] = now_ms
        return found

    browsers = browse(place, paths, users, seconds, PAUSE_S, AGE_S)
    problem = next((browser.problem for browser in browsers if browser.problem), "")
    return [refresh for browser in browsers for refresh in browser.refreshes], problem


def rule_file(count: int, sources: int) -> str:
    """Return rules that never fire, as JSON, which is YAML."""
    rules = []
    for number in range(count):
        name = variable(number * 7)
        fleet, host = f"fetch('{name}').rate('5m').max(by=[])", host_series(name, number * 11, sources)
        expression = f"fetch('{host}').rate('5m')" if number % RULES_A_FLEET_RULE else fleet
        rule = {"name": f"bench-{number}", "expr": expression, "threshold": "> 1e9", "missing": "keep"}
        rules.append({**rule, "accept": ["partial"]})  # the first windows begin before the load
    return json.dumps({"rules": rules}, indent=1)
