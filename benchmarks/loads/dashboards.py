"""Queries of many users, all with different texts, as from personal dashboards."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.loads.racks import RACKS

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
