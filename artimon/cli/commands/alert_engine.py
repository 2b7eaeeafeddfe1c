"""Command of the alert engine, and commands about its alerts: list, ack, silence, history."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from artimon.cli.common import (
    DataOption,
    JsonOption,
    Panel,
    ZookeeperOption,
    as_usage_error,
    escape_control,
    exits,
    print_error,
    user_name,
    zookeeper_of_store,
)
from artimon.cli.settings_command import OptionValues, settings_group
from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime.http.engine_client import TIMEOUT_S, EngineClient, EngineError
from artimon.runtime.settings import SettingsError, api_token

PANEL = Panel.PROCESS
OPERATORS = {(True, False): "=", (True, True): "=~", (False, False): "!=", (False, True): "!~"}
"""Operators of matchers by the flags isEqual and isRegex of Alertmanager's API."""
app = typer.Typer()
alerts_app = typer.Typer()
silence_app = typer.Typer(no_args_is_help=True, help="Silences: alerts that match one are left out of messages.")
app.add_typer(alerts_app, name="alerts")
alerts_app.add_typer(silence_app, name="silence")

EngineOption = Annotated[
    str | None, typer.Option("--engine", help="host:port of the engine's API; by default that of ZooKeeper.")
]
TokenOption = Annotated[
    Path | None,
    typer.Option("--token", help="File with the token of the engine's API (ARTIMON_TOKEN_FILE, ARTIMON_TOKEN)."),
]
AuthorOption = Annotated[str, typer.Option("--author", help="Author of the action; by default the user.")]
CommentOption = Annotated[str, typer.Option("--comment", help="Reason of the action.")]
FilterOption = Annotated[
    list[str] | None, typer.Option("--filter", help="Matcher, such as 'host=~\"a.*\"'; may be repeated.")
]
LinesOption = Annotated[int, typer.Option("-n", "--lines", min=1, max=1_000, help="Number of entries.")]


@settings_group(alerts_app, "alerts.engine_process:AlertsConfig")
def alerts(
    given: OptionValues, rules: Annotated[Path | None, typer.Option(help="Folder of the rule files.")] = None
) -> None:
    """Run the alert engine."""
    from alerts.engine_process import AlertsConfig
    from artimon.cli import process_wiring as processes

    settings = given.make(AlertsConfig, rules=rules or Path(), hdfs=given.defaults.hdfs)
    processes.run_alerts_process(settings if rules else replace(settings, rules=settings.data / "rules"))


def _client(
    engine: str | None, token: Path | None, zookeeper: str | None, data: Path | None, author: str = ""
) -> EngineClient:
    """Return the client of the named engine, or of the only one in ZooKeeper. Raises EngineError."""
    try:
        secret = api_token() if token is None else ""
    except SettingsError as problem:
        raise EngineError(str(problem)) from None
    if token is None and not secret and engine is None:
        from artimon.stack.stack_location import engine_token_of

        token = engine_token_of(data)
    if token is not None:
        try:
            secret = token.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise EngineError(f"{token} cannot be read: {type(error).__name__}") from error
    return EngineClient(engine or _engine_address(zookeeper_of_store(zookeeper, data)), author or user_name(), secret)


def _engine_address(zookeeper: str) -> str:
    from kazoo.handlers.threading import KazooTimeoutError

    from alerts.state.publication import leading_engine, read_alerts
    from artimon.runtime.zookeeper_client import zookeeper_session

    try:
        with zookeeper_session(zookeeper, TIMEOUT_S) as client:
            found = read_alerts(client)
    except KazooTimeoutError as error:
        raise EngineError(f"ZooKeeper at {zookeeper} does not answer: give --engine host:port") from error
    try:
        return leading_engine(found)
    except EngineError as error:
        raise EngineError(f"{error}: give one by --engine host:port") from None


def _labels_text(labels: Mapping[str, Any]) -> str:
    pairs = (f"{name}={value}" for name, value in sorted(labels.items()) if name != "alertname")
    return escape_control(f"{labels.get('alertname', '')} {' '.join(pairs)}".strip())


# ---- alerts


@alerts_app.command("list")
def list_alerts(
    filters: FilterOption = None,
    receiver: Annotated[str | None, typer.Option(help="Receivers, a regular expression.")] = None,
    as_json: JsonOption = False,
    engine: EngineOption = None,
    token: TokenOption = None,
    zookeeper: ZookeeperOption = None,
    data: DataOption = None,
) -> None:
    """List the alerts that fire, with silences and acknowledgements."""
    with exits(EngineError):
        client = _client(engine, token, zookeeper, data)
        found = client.ask("GET", "/api/v2/alerts", filter=filters, receiver=receiver)
    if as_json:
        print(json.dumps(found, indent=1))
        return
    for one in found:
        print(_alert_line(one))


def _alert_line(alert: Mapping[str, Any]) -> str:
    status, notes = alert["status"], []
    if status["silencedBy"]:
        notes.append(f"silenced by {', '.join(status['silencedBy'])}")
    if status["inhibitedBy"]:
        notes.append(f"inhibited by {', '.join(status['inhibitedBy'])}")
    if alert["acknowledged"]:
        notes.append(f"acknowledged by {alert['acknowledged']['author']}: {alert['acknowledged']['comment']}")
    summary = alert["annotations"].get("summary", "")
    words = [alert["fingerprint"], alert["startsAt"], _labels_text(alert["labels"]), summary]
    return escape_control("  ".join([*(word for word in words if word), *(f"[{note}]" for note in notes)]))


@alerts_app.command("ack")
def acknowledge(
    alerts: Annotated[list[str] | None, typer.Argument(help="Identities of alerts, or their first characters.")] = None,
    filters: FilterOption = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", help="Label of a group of messages, LABEL=VALUE; may be repeated.")
    ] = None,
    comment: CommentOption = "",
    until: Annotated[
        str | None, typer.Option("--for", help="Duration, such as 2h; by default as long as the alert.")
    ] = None,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Withdraw the acknowledgement.")] = False,
    author: AuthorOption = "",
    engine: EngineOption = None,
    token: TokenOption = None,
    zookeeper: ZookeeperOption = None,
    data: DataOption = None,
) -> None:
    """Acknowledge alerts: unchanged groups of acknowledged alerts are not sent again."""
    if sum(map(bool, (alerts, filters, group))) != 1:
        raise typer.BadParameter("name alerts by one of: identities, --filter, --group")
    if not withdraw and not comment:
        raise typer.BadParameter("--comment: give a reason")
    chosen: dict[str, Any] = {"filter": ",".join(filters or ())} if filters else {}
    if group:
        chosen = {"group": as_usage_error(_pairs, group)}
    with exits(EngineError):
        client = _client(engine, token, zookeeper, data, author)
        if alerts:
            chosen = {"alerts": _full_identities(alerts, client.ask("GET", "/api/v2/alerts"))}
        told = {**chosen, "createdBy": client.author, "comment": comment, "duration": until or ""}
        if withdraw:
            done = client.ask("DELETE", "/api/alerts/acknowledgements", chosen)["withdrawn"]
        else:
            done = client.ask("POST", "/api/alerts/acknowledgements", told)["acknowledged"]
    print("\n".join(done))


def _pairs(texts: Iterable[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise ValueError(f"{text!r}: write LABEL=VALUE")
        found[name] = value
    return found


def _full_identities(given: Iterable[str], alerts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the identities that begin with the given characters. Raises EngineError."""
    known = [str(one["fingerprint"]) for one in alerts]
    found = []
    for text in given:
        same = [one for one in known if one.startswith(text)]
        if len(same) != 1:
            raise EngineError(f"{text}: {len(same)} alerts that fire have this identity")
        found += same
    return found


# ---- silences


@silence_app.command("add")
def add_silence(
    matchers: Annotated[list[str], typer.Argument(help="Matchers, such as host=a or 'rack=~\"1|2\"'.")],
    comment: CommentOption = "",
    duration: Annotated[str, typer.Option("--for", help="Duration.")] = "1h",
    preview: Annotated[bool, typer.Option("--preview", help="Only list the alerts that it would hide.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Do not ask back if it hides every alert.")] = False,
    author: AuthorOption = "",
    engine: EngineOption = None,
    token: TokenOption = None,
    zookeeper: ZookeeperOption = None,
    data: DataOption = None,
) -> None:
    """Add a silence from now on, and print its identity; the alerts that it hides now go to standard error."""
    from alerts.dispatch.matchers import parse_matchers
    from artimon.runtime.text import parse_duration
    from query_dsl.tree.times import format_time

    found = [one for text in matchers for one in as_usage_error(parse_matchers, text)]
    length_ms, now_ms = as_usage_error(parse_duration, duration), SYSTEM_CLOCK.now_ms()
    if not preview and not comment:
        raise typer.BadParameter("--comment: give a reason")
    with exits(EngineError):
        client = _client(engine, token, zookeeper, data, author)
        hidden = client.ask("GET", "/api/v2/alerts", filter=matchers)
        for one in hidden:
            print(_alert_line(one), file=sys.stdout if preview else sys.stderr)
        print_error(f"artimon: {len(hidden)} alerts that fire match")
        if preview:
            return
        body = {
            "matchers": [
                {"name": one.label, "value": one.value, "isRegex": "~" in one.op, "isEqual": one.op[0] != "!"}
                for one in found
            ],
            "startsAt": format_time(now_ms),
            "endsAt": format_time(now_ms + length_ms),
            "createdBy": client.author,
            "comment": comment,
        }
        print(_post_silence(client, body, force)["silenceID"])


def _post_silence(client: EngineClient, body: Mapping[str, Any], force: bool) -> Any:
    """Post a silence; ask back if it hides everything and a person can answer. Raises EngineError."""
    path = "/api/v2/silences"
    try:
        return client.ask("POST", path, body, force="true" if force else None)
    except EngineError as problem:
        if problem.status != 409 or force or "force=true" not in str(problem):
            raise
        if not sys.stdin.isatty():
            raise EngineError(str(problem).replace("force=true", "--force"), 409) from None
        if not typer.confirm("This silence hides every alert. Add it?", err=True):
            raise EngineError("no silence was added") from None
    return client.ask("POST", path, body, force="true")


@silence_app.command("list")
def list_silences(
    filters: FilterOption = None,
    expired: Annotated[bool, typer.Option("--expired", help="Expired ones too.")] = False,
    as_json: JsonOption = False,
    engine: EngineOption = None,
    token: TokenOption = None,
    zookeeper: ZookeeperOption = None,
    data: DataOption = None,
) -> None:
    """List the silences."""
    with exits(EngineError):
        found = _client(engine, token, zookeeper, data).ask("GET", "/api/v2/silences", filter=filters)
    shown = [one for one in found if expired or one["status"]["state"] != "expired"]
    if as_json:
        print(json.dumps(shown, indent=1))
        return
    for one in shown:
        words = [one["id"], one["status"]["state"], f"until {one['endsAt']}", _matchers_text(one["matchers"])]
        print(escape_control("  ".join([*words, one["createdBy"], one["comment"]])))


def _matchers_text(matchers: Iterable[Mapping[str, Any]]) -> str:
    return ",".join(
        f"{one['name']}{OPERATORS[one['isEqual'], one['isRegex']]}{json.dumps(one['value'])}" for one in matchers
    )


@silence_app.command("expire")
def expire_silence(
    ids: Annotated[list[str], typer.Argument(help="Identities of silences.")],
    author: AuthorOption = "",
    engine: EngineOption = None,
    token: TokenOption = None,
    zookeeper: ZookeeperOption = None,
    data: DataOption = None,
) -> None:
    """End silences now."""
    with exits(EngineError):
        client = _client(engine, token, zookeeper, data, author)
        for id in ids:
            client.ask("DELETE", f"/api/v2/silence/{id}")


# ---- logs


@alerts_app.command("history")
def history(
    alert: Annotated[str, typer.Argument(help="Identity of an alert; by default all.")] = "",
    actions: Annotated[bool, typer.Option("--actions", help="Show the audit log of actions instead.")] = False,
    lines: LinesOption = 50,
    as_json: JsonOption = False,
    engine: EngineOption = None,
    token: TokenOption = None,
    zookeeper: ZookeeperOption = None,
    data: DataOption = None,
) -> None:
    """List the begins and ends of alerts, or the actions of people, newest first."""
    from query_dsl.tree.times import format_time

    with exits(EngineError):
        client = _client(engine, token, zookeeper, data)
        if actions:
            found = client.ask("GET", "/api/alerts/audit", limit=lines)
        else:
            found = client.ask("GET", "/api/alerts/history", limit=lines, fingerprint=alert or None)
    if as_json:
        print(json.dumps(found, indent=1))
        return
    for one in found:
        if actions:
            words = [format_time(one["time_ms"]), one["author"], one["action"], one["subject"], one["comment"]]
        else:
            labels = _labels_text({"alertname": one["rule"], **one["labels"]})
            words = [format_time(one["time_ms"]), one["fingerprint"], one["change"], labels, one["summary"]]
        print(escape_control("  ".join(word for word in words if word)))
