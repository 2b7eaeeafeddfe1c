"""Queries of many users: all with different texts, as from personal dashboards, or of boards that users share."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from urllib.parse import urlencode

from benchmarks.loads.racks import MINUTE_MS, RACKS

_RACK, _HOST = '{{rack="r{rack:02}"}}', '{{host="host-{host:06}"}}'
DASHBOARD = (
    f"fetch('bench.requests{_RACK}').rate('5m').sum(by=['rack']).range('{{minutes}}m')",
    f"fetch('bench.requests{_HOST}').rate('5m').range('{{minutes}}m')",
    f"(fetch('disk.used{_RACK}') / fetch('disk.size{_RACK}')).topk(5, by=[]).range('{{minutes}}m')",
    "fetch('bench.requests{{rack!=\"r{rack:02}\"}}').sum(by=['rack']).range('{minutes}m')",
)
"""Queries of one dashboard; each names a rack or a host, and a range."""
MINUTES = range(20, 51)
HOST_STEP = 37


def texts(series: int) -> Iterator[str]:
    """Yield texts of the four queries in turn; no text repeats within RACKS x MINUTES turns."""
    turn = 0
    while True:
        rack, minutes = turn % RACKS, MINUTES[turn // RACKS % len(MINUTES)]
        for question in DASHBOARD:
            yield question.format(rack=rack, host=turn * HOST_STEP % series, minutes=minutes)
        turn += 1


VARIABLES = "/api/label_values?label=rack&limit=10000"
"""Request for the values of the variable of a board."""
_SHARE = "(fetch('disk.used{{{of}}}') / fetch('disk.size{{{of}}}'))"
_FLEET = (
    "fetch('bench.requests{{{of}}}').rate('5m').sum(by=[])",
    "fetch('bench.requests{{{of}}}').rate('5m').sum(by=['rack'])",
    "fetch('bench.requests{{{of}}}').rate('5m').topk(10, by=[])",
    "fetch('bench.requests{{{of}}}').rate('5m').quantile(0.95, by=['rack'])",
    f"{_SHARE}.max(by=['rack'])",
    f"{_SHARE}.topk(10, by=[])",
)
"""Panels over all series but those of one rack, so that no board has the texts of another."""
_TEAM = (
    "fetch('bench.requests{{{of}}}').rate('5m').sum(by=[])",
    "fetch('bench.requests{{{of}}}').rate('5m').topk(5, by=[])",
    f"{_SHARE}.max(by=[])",
    f"{_SHARE}.topk(5, by=[])",
)
"""Panels over the series of a rack, for each of two racks."""
_PROMQL = (
    'sum(rate({{"bench.requests",{of}}}[5m]))',
    'topk(5, rate({{"bench.requests",{of}}}[5m]))',
)
HOSTS = 4
"""Panels with the rate of a single host."""
HOUR_MINUTES = 60
NEWEST, WHOLE_MS = 8, 600_000
"""Points of a refresh, and interval of whole answers, as in increments.js of the page."""


def _is_whole(text: str, now_ms: int, before_ms: int | None) -> bool:
    """Return True if the page asks for the whole range: first, once in a slot, and where the members of `topk` change
    each minute, so that their newest points do not fit what the page holds."""
    offset = zlib.crc32(text.encode()) % WHOLE_MS
    slots = {(ms + offset) // WHOLE_MS for ms in (now_ms, before_ms or 0)}
    return len(slots) > 1 or ".topk(" in text


def requests_of(texts: Sequence[str], now_ms: int, before_ms: int | None) -> list[str]:
    """Return the requests of panels with these queries over the last hour."""
    whole = [_is_whole(text, now_ms, before_ms) for text in texts]
    newest = [{} if all_ else {"newest": str(NEWEST)} for all_ in whole]
    return [
        "/api/query?" + urlencode({"q": f"{text}.range('1h')", **points})
        for text, points in zip(texts, newest, strict=True)
    ]


def board(number: int, series: int, now_ms: int, before_ms: int | None = None) -> list[str]:
    """Return the requests of the 20 panels of board `number` over the last hour, as the page sends them. `before_ms`:
    time of the refresh before, None for the first."""
    racks = [f'rack="r{(2 * number + i) % RACKS:02}"' for i in range(2)]
    texts = [text.format(of=f'rack!="r{number % RACKS:02}"') for text in _FLEET]
    texts += [text.format(of=rack) for rack in racks for text in _TEAM]
    hosts = [(HOSTS * number + i) * HOST_STEP % series for i in range(HOSTS)]
    texts += [f"fetch('bench.requests{{host=\"host-{host:06}\"}}').rate('5m')" for host in hosts]
    found, end = requests_of(texts, now_ms, before_ms), now_ms // MINUTE_MS * 60
    for text in (promql.format(of=racks[0]) for promql in _PROMQL):
        points = HOUR_MINUTES if _is_whole(text, now_ms, before_ms) else NEWEST
        times = {"start": end - 60 * (points - 1), "end": end, "step": 60}
        found.append(f"/api/v1/query_range?{urlencode({'query': text, **times})}")
    return found
