"""Oracle: Debian's Alertmanager and ours get the same routing file and the same alerts at the same times, and tell the
same: receivers, keys of groups, states and alerts. The scenarios run side by side, each with a route of its own."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from alerts.dispatch.dispatcher import Dispatcher
from alerts.dispatch.routes import Routing
from alerts.dispatch.routing_file import parse_routing
from alerts.dispatch.silences import Silence, Silences, checked_matchers
from alerts.receivers.receiver_kind import Integration
from alerts.receivers.webhook import payload
from alerts.state.alert import AlertChange
from alerts.state.notification import Notification
from benchmarks.peers.process import serving
from scripts.programs import Program
from tests.alerts.mailboxes import free_port
from tests.alerts.webhook_server import WebhookServer, webhook_server
from tests.programs import require

pytestmark = [pytest.mark.programs, pytest.mark.slow, pytest.mark.timeout(300)]
END_S = 26.0
STEP_S = 0.25

Step = tuple[float, str, Mapping[str, str]]
"""Second, "fire", "resolve", "silence" or "unsilence", labels."""
SILENCE_S = 7.0
"""Length of a silence that is not expired before."""


@dataclass(frozen=True)
class Case:
    """`route`: keys of the route of this scenario; `rules`: inhibition between labels of this scenario."""

    name: str
    steps: tuple[Step, ...]
    route: Mapping[str, Any]
    rules: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    send_resolved: bool = True
    more: int = 0
    """Messages at the end that only ours sends."""


def fire(at_s: float, **labels: str) -> Step:
    return at_s, "fire", {"alertname": "down", **labels}


def end(at_s: float, **labels: str) -> Step:
    return at_s, "resolve", {"alertname": "down", **labels}


def hush(at_s: float, **labels: str) -> Step:
    return at_s, "silence", labels


def unhush(at_s: float, **labels: str) -> Step:
    return at_s, "unsilence", labels


FAST = {"group_wait": "2s", "group_interval": "5s", "repeat_interval": "1h"}
BY_RACK = {**FAST, "group_by": ["rack"]}
SITE = ('kind="site"', 'kind="host"', ("site",))


def cases() -> list[Case]:
    """Timelines: steps lie half a second beside every flush."""
    return [
        Case("one", (fire(0.5, host="a"),), FAST),
        Case("resolve", (fire(0.5, host="a"), end(4, host="a")), FAST),
        Case("resolve in wait", (fire(0.5, host="a"), end(1.5, host="a")), FAST),
        Case("two in wait", (fire(0.5, host="a"), fire(1.5, host="b")), FAST),
        Case("second later", (fire(0.5, host="a"), fire(4, host="b")), FAST),
        Case("second resolves", (fire(0.5, host="a"), fire(1, host="b"), end(4, host="b")), FAST),
        Case("all resolve", (fire(0.5, host="a"), fire(1, host="b"), end(4, host="b"), end(5, host="a")), FAST),
        Case("flaps between flushes", (fire(0.5, host="a"), end(4, host="a"), fire(5, host="a")), FAST),
        Case("fires again", (fire(0.5, host="a"), end(4, host="a"), fire(10, host="a")), FAST),
        Case("comes and goes between flushes", (fire(0.5, host="a"), fire(4, host="b"), end(5, host="b")), FAST),
        Case("groups", (fire(0.5, host="a", rack="1"), fire(1, host="b", rack="2")), BY_RACK),
        Case("group without the label", (fire(0.5, host="a"), fire(1, host="b", rack="2")), BY_RACK),
        Case(
            "regroups",
            (fire(0.5, host="a", rack="1"), end(4, host="a", rack="1"), fire(4, host="a", rack="2")),
            BY_RACK,
        ),
        Case("every label", (fire(0.5, host="a"), fire(0.5, host="b")), {**FAST, "group_by": ["..."]}),
        Case(
            "by name", (fire(0.5, host="a"), fire(0.5, host="a", alertname="disk")), {**FAST, "group_by": ["alertname"]}
        ),
        Case("repeat", (fire(0.5, host="a"),), {**FAST, "repeat_interval": "6s"}),
        Case("repeat with a change", (fire(0.5, host="a"), fire(9, host="b")), {**FAST, "repeat_interval": "6s"}),
        Case("repeat ends", (fire(0.5, host="a"), end(9, host="a")), {**FAST, "repeat_interval": "6s"}),
        Case("without resolved", (fire(0.5, host="a"), end(4, host="a")), FAST, send_resolved=False),
        Case(
            "one of two without resolved",
            (fire(0.5, host="a"), fire(1, host="b"), end(4, host="b")),
            FAST,
            send_resolved=False,
        ),
        Case(
            "again without resolved",
            (fire(0.5, host="a"), end(4, host="a"), fire(10, host="a")),
            FAST,
            send_resolved=False,
        ),
        Case(
            "new and resolved without resolved",
            (fire(0.5, host="a"), end(4, host="a"), fire(5, host="b")),
            FAST,
            send_resolved=False,
        ),
        Case(
            "site mutes host",
            (fire(0.5, kind="site", site="p"), fire(0.5, kind="host", site="p", host="a")),
            FAST,
            (SITE,),
        ),
        Case(
            "other site", (fire(0.5, kind="site", site="p"), fire(0.5, kind="host", site="r", host="a")), FAST, (SITE,)
        ),
        Case("no site label", (fire(0.5, kind="site"), fire(0.5, kind="host", host="a")), FAST, (SITE,)),
        Case("site later", (fire(0.5, kind="host", site="p", host="a"), fire(4, kind="site", site="p")), FAST, (SITE,)),
        Case(
            "site resolves",
            (
                fire(0.5, kind="site", site="p"),
                fire(0.5, kind="host", site="p", host="a"),
                end(4, kind="site", site="p"),
            ),
            FAST,
            (SITE,),
        ),
        Case(
            "host resolves muted",
            (
                fire(0.5, kind="site", site="p"),
                fire(0.5, kind="host", site="p", host="a"),
                end(4, kind="host", site="p", host="a"),
            ),
            FAST,
            (SITE,),
        ),
        Case(
            "muted after it was told",
            (
                fire(0.5, kind="host", site="p", host="a"),
                fire(4, kind="site", site="p"),
                end(9, kind="host", site="p", host="a"),
            ),
            FAST,
            (SITE,),
        ),
        Case(
            "muted, then back",
            (fire(0.5, kind="host", site="p", host="a"), fire(4, kind="site", site="p"), end(9, kind="site", site="p")),
            FAST,
            (SITE,),
        ),
        Case(
            "both sides",
            (fire(0.5, kind="both", host="a"), fire(1, kind="both", host="b")),
            FAST,
            (('kind="both"', 'kind="both"', ()),),
        ),
        Case(
            "one sided source",
            (fire(0.5, kind="both", host="a"), fire(0.5, kind="other", host="b")),
            FAST,
            (('kind=~"both|other"', 'kind="both"', ()),),
        ),
        Case(
            "chain",
            (fire(0.5, kind="site", site="p"), fire(0.5, kind="host", site="p"), fire(0.5, kind="app", site="p")),
            FAST,
            (SITE, ('kind="host"', 'kind="app"', ("site",))),
        ),
        Case("no wait", (fire(0.5, host="a"), fire(1.5, host="b")), {**FAST, "group_wait": "0s"}),
        Case(
            "long interval",
            (fire(0.5, host="a"), fire(4, host="b"), end(8, host="a")),
            {**FAST, "group_interval": "12s"},
        ),
        Case(
            "short interval",
            (fire(0.5, host="a"), fire(3, host="b"), end(5, host="a"), end(7, host="b")),
            {**FAST, "group_interval": "2s"},
        ),
        Case(
            "child route",
            (fire(0.5, host="a", tier="db"), fire(0.5, host="b")),
            {**FAST, "routes": [{"matchers": ['tier="db"'], "group_by": ["host"]}]},
        ),
        Case(
            "first child wins",
            (fire(0.5, host="a", tier="db"),),
            {
                **FAST,
                "routes": [
                    {"matchers": ['tier=~"d.*"'], "group_by": ["tier"]},
                    {"matchers": ['tier="db"'], "group_by": ["host"]},
                ],
            },
        ),
        Case(
            "continue",
            (fire(0.5, host="a", tier="db"),),
            {
                **FAST,
                "routes": [
                    {"matchers": ['tier=~"d.*"'], "group_by": ["tier"], "continue": True},
                    {"matchers": ['tier="db"'], "group_by": ["host"]},
                ],
            },
        ),
        Case(
            "grandchild",
            (fire(0.5, host="a", tier="db", rack="1"),),
            {
                **FAST,
                "routes": [{"matchers": ['tier="db"'], "routes": [{"matchers": ['rack!="2"'], "group_by": ["rack"]}]}],
            },
        ),
        Case(
            "old matchers",
            (fire(0.5, host="a", tier="db"),),
            {**FAST, "routes": [{"match": {"tier": "db"}, "match_re": {"host": "a|b"}, "group_by": ["host"]}]},
        ),
        Case("silenced from the start", (hush(0.1, host="a"), fire(0.5, host="a")), FAST),
        Case(
            "silence ends with what fires",
            (hush(0.1, host="a"), fire(0.5, host="a"), fire(0.5, host="b"), end(11, host="b")),
            FAST,
        ),
        Case("resolves in the silence", (hush(0.1, host="a"), fire(0.5, host="a"), end(4, host="a")), FAST),
        Case(
            "told, then silenced, then resolves in the silence",
            (fire(0.5, host="a"), hush(4, host="a"), end(5, host="a")),
            FAST,
        ),
        Case(
            "fires again after it resolved in the silence: Alertmanager says nothing before repeat_interval",
            (fire(0.5, host="a"), hush(4, host="a"), end(5, host="a"), fire(16, host="a")),
            FAST,
            more=1,
        ),
        Case("told, then silenced, fires on", (fire(0.5, host="a"), hush(4, host="a")), FAST),
        Case(
            "silenced, repeats",
            (fire(0.5, host="a"), hush(4, host="a")),
            {**FAST, "repeat_interval": "6s"},
        ),
        Case(
            "one of two is silenced",
            (fire(0.5, host="a"), fire(0.5, host="b"), hush(4, host="a"), end(6, host="b"), end(14, host="a")),
            FAST,
        ),
        Case("silence is expired", (hush(0.1, host="a"), fire(0.5, host="a"), unhush(4, host="a")), FAST),
        Case("silence of a label", (hush(0.1, rack="1"), fire(0.5, host="a", rack="1"), fire(0.5, host="b")), FAST),
        Case(
            "a silenced source still mutes",
            (
                hush(0.1, kind="site"),
                fire(0.5, kind="site", site="p"),
                fire(0.5, kind="host", site="p", host="a"),
            ),
            FAST,
            (SITE,),
        ),
        Case("quotes in labels", (fire(0.5, host='a"b\\c'),), {**FAST, "group_by": ["host"]}),
    ]


def configuration(made: list[Case], address: str) -> str:
    """File for both, in JSON, which is YAML."""
    routes, receivers, rules = [], [], []
    for at, case in enumerate(made):
        routes.append({"matchers": [f'case="{at}"'], "receiver": f"r{at}", "group_by": ["case"], **case.route})
        hook = {"url": f"{address}/{at}", "send_resolved": case.send_resolved}
        receivers.append({"name": f"r{at}", "webhook_configs": [hook]})
        for source, target, equal in case.rules:
            sides = {"source_matchers": [source, f'case="{at}"'], "target_matchers": [target, f'case="{at}"']}
            rules.append({**sides, "equal": list(equal)})
    root = {"receiver": "r0", "routes": routes}
    return json.dumps({"route": root, "receivers": receivers, "inhibit_rules": rules})


Told = tuple[str, str, str, str, frozenset[tuple[str, str]]]
"""Path, receiver, key of the group, status, and (status, labels) of each alert."""


def told_of(path: str, body: Mapping[str, Any]) -> Told:
    alerts = frozenset((one["status"], json.dumps(one["labels"], sort_keys=True)) for one in body["alerts"])
    return path, body["receiver"], body["groupKey"], body["status"], alerts


def timeline(made: list[Case]) -> list[tuple[float, str, dict[str, str]]]:
    found = [
        (at_s, kind, {**labels, "case": str(n)}) for n, case in enumerate(made) for at_s, kind, labels in case.steps
    ]
    return sorted(found, key=lambda one: one[0])


def ours(made: list[Case], config: str) -> list[Told]:
    routing, left_out = parse_routing(config, "am.yml", Routing("r0", {"r0": (Integration("webhook:x"),)}))
    assert not left_out
    dispatcher, start_ms, waiting = Dispatcher(routing), 1_800_000_000_000, timeline(made)
    silences, ids = Silences(lambda _commit: None), dict[str, str]()
    out: list[Told] = []
    for step in range(int(END_S / STEP_S)):
        now_ms = start_ms + int(step * STEP_S * 1000)
        while waiting and start_ms + waiting[0][0] * 1000 <= now_ms:
            at_s, kind, labels = waiting.pop(0)
            if kind == "silence":
                matchers = checked_matchers((name, "=", value) for name, value in labels.items())
                ends_ms = now_ms + int(SILENCE_S * 1000)
                ids[json.dumps(labels)] = silences.put(Silence("", matchers, now_ms, ends_ms, "ana", "x"), now_ms).id
                continue
            if kind == "unsilence":
                silences.expire(ids[json.dumps(labels)], "ana", now_ms)
                continue
            at_ms, change = start_ms + int(at_s * 1000), AlertChange.FIRING if kind == "fire" else AlertChange.RESOLVED
            rule, pairs = labels.pop("alertname"), tuple(sorted(labels.items()))
            ended_ms = at_ms if change is AlertChange.RESOLVED else 0
            note = Notification(change, rule, pairs, "", "", 0, at_ms, at_ms, ended_ms, 0, "", "")
            dispatcher.put([note], now_ms)
        letters = dispatcher.flush(now_ms, silences.hides)
        out += [told_of(letter.target.rpartition("/")[2], payload(letter.message, "")) for letter in letters]
    return out


def with_templates(program: Program, options: list[str]) -> tuple[Program, list[str]]:
    """Return a command that shows the package's /usr/share to the program, which has the path of its templates built
    in. The mount is seen by that process only."""
    shared = program.path.parent.parent / "share"
    if shared == Path("/usr/share"):
        return program, options
    mount = 'mount -t overlay overlay -o "lowerdir=$0:/usr/share" /usr/share && exec "$@"'
    arguments = ["--user", "--map-root-user", "--mount", "sh", "-c", mount, str(shared), str(program.path), *options]
    return Program(Path("/usr/bin/unshare"), program.environment), arguments


@contextmanager
def alertmanager(config: str, folder: Path) -> Iterator[str]:
    """Run Debian's Alertmanager; yields host:port."""
    (folder / "am.yml").write_text(config)
    address = f"127.0.0.1:{free_port()}"
    options = [
        f"--config.file={folder / 'am.yml'}", f"--storage.path={folder / 'data'}", f"--web.listen-address={address}",
        "--cluster.listen-address=", "--log.level=error",
    ]  # fmt: skip
    program, arguments = with_templates(require("alertmanager"), options)
    with serving(program, arguments, f"http://{address}/-/ready", folder / "am.log"):
        yield address


def theirs(made: list[Case], config: str, folder: Path, server: WebhookServer) -> list[Told]:
    with alertmanager(config, folder) as address:
        began = time.monotonic()
        started: dict[str, str] = {}
        ids: dict[str, str] = {}
        for at_s, kind, labels in timeline(made):
            time.sleep(max(0.0, began + at_s - time.monotonic()))
            now = datetime.now(UTC).isoformat()
            if kind == "silence":
                ids[json.dumps(labels)] = post_silence(address, labels)
                continue
            if kind == "unsilence":
                expire_silence(address, ids[json.dumps(labels)])
                continue
            key = json.dumps(labels, sort_keys=True)
            body = {"labels": labels, "startsAt": now if kind == "fire" else started[key]}
            started[key] = str(body["startsAt"])
            late = datetime.fromtimestamp(time.time() + 3_600, UTC).isoformat()
            post(address, {**body, "endsAt": late if kind == "fire" else now})
        time.sleep(max(0.0, began + END_S - time.monotonic()))
    return [told_of(path.removeprefix("/"), body) for path, body in server.bodies]


def post(address: str, alert: Mapping[str, object]) -> None:
    request = urllib.request.Request(
        f"http://{address}/api/v2/alerts", json.dumps([alert]).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200


def post_silence(address: str, labels: Mapping[str, str]) -> str:
    now = time.time()
    starts, ends = (datetime.fromtimestamp(at, UTC).isoformat() for at in (now, now + SILENCE_S))
    matchers = [{"name": k, "value": v, "isRegex": False, "isEqual": True} for k, v in labels.items()]
    body = {"matchers": matchers, "startsAt": starts, "endsAt": ends, "createdBy": "ana", "comment": "x"}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://{address}/api/v2/silences", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(json.loads(answer.read())["silenceID"])


def expire_silence(address: str, id: str) -> None:
    request = urllib.request.Request(f"http://{address}/api/v2/silence/{id}", method="DELETE")
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200


def test_messages_are_those_of_alertmanager(tmp_path: Path) -> None:
    made = cases()
    assert len(made) >= 40
    with webhook_server() as server:
        config = configuration(made, server.address)
        expected = theirs(made, config, tmp_path, server)
    found = ours(made, config)
    for at, case in enumerate(made):
        mine = of_case(found, at)
        assert mine[: len(mine) - case.more] == of_case(expected, at), case.name


def of_case(told: list[Told], at: int) -> list[Told]:
    """Messages of one scenario by group, each in the order of time: flushes of different groups run side by side."""
    return sorted((one for one in told if one[0] == str(at)), key=lambda one: one[2])
