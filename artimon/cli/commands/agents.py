"""Commands for agents and their flows: state and control. They need only ZooKeeper."""

from __future__ import annotations

import json
import threading
import uuid
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from artimon.cli.clusters import (
    Cluster,
    ClustersOption,
    DefaultListGroup,
    ZookeepersOption,
    choose_clusters,
    run_in_each,
)
from artimon.cli.commands.config import operator_keys
from artimon.cli.common import JsonOption, Panel, escape_control, exits, print_error
from artimon.model.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from pipeline.control.agent_commands import CommandAnswer
    from pipeline.control.control_tree import ControlTree

PANEL = Panel.OPERATE
app = typer.Typer()
agents_app = typer.Typer(cls=DefaultListGroup, help="State of the agents; drain, pause, resume, roll, release.")
flows_app = typer.Typer(cls=DefaultListGroup, help="The flows of the agents.")
app.add_typer(agents_app, name="agents")
app.add_typer(flows_app, name="flows")

AgentArgument = Annotated[str, typer.Argument(metavar="AGENT", help="Name of an agent, as `artimon agent --name`.")]
WaitOption = Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait for the answer; 0: do not wait.")]
IdOption = Annotated[str, typer.Option("--id", help="Id of the command; repeating an id only prints its answer.")]
GRACE_S = 10.0
"""Added to `--wait`: an agent may answer at its deadline, and the answer takes time to arrive."""


@agents_app.command("list")
def list_agents(
    zookeeper: ZookeepersOption = None, clusters: ClustersOption = None, as_json: JsonOption = False
) -> None:
    """List every agent with versions, lag, log and flows; exit 1 if a cluster or an agent has a problem."""
    found, good = run_in_each(choose_clusters(zookeeper, clusters), lambda _, tree: list_known_agents(tree))
    rows = [agent_row(cluster, name, report) for cluster, agents in found.items() for name, report in agents.items()]
    if as_json:
        print(json.dumps({"agents": rows}, indent=1))
    elif found:
        _print_agents(rows, many=len(found) > 1)
    if not good or any(row["problems"] for row in rows):
        raise typer.Exit(1)


def list_known_agents(tree: ControlTree) -> dict[str, dict[str, Any] | None]:
    """Return the reports of the live agents by name; None for agents that have their own configuration but are down."""
    live = tree.agents()
    named = [scope.partition("/")[2] for scope in tree.scopes() if scope.startswith("agent/")]
    return {**live, **{name: None for name in named if name not in live}}


def agent_row(cluster: str, name: str, reported: dict[str, Any] | None) -> dict[str, Any]:
    """Return the JSON row of one agent; ages in ms, None if not reported."""
    report: dict[str, Any] = {"problem": "not live: no session in ZooKeeper"} if reported is None else reported
    figures, config = report.get("figures") or {}, report.get("config") or {}
    told_ms = report.get("time_ms")
    problems = list(report.get("problems") or ())
    if "problem" in report:
        problems.append(str(report["problem"]))
    flows = [flow for flow in report.get("flows") or () if isinstance(flow, dict)]
    return {
        "cluster": cluster,
        "agent": name,
        "live": reported is not None,
        "host": report.get("host"),
        "version": report.get("version"),
        "mode": report.get("mode"),
        "groups": report.get("groups") or [],
        "config": config,
        "lag_ms": figures.get("oldest_unsent_ms"),
        "oldest_unacked_ms": figures.get("oldest_unacked_ms"),
        "pending_batches": figures.get("pending_batches"),
        "log_bytes": figures.get("log_bytes"),
        "log_quota_bytes": figures.get("log_quota_bytes"),
        "flows": flows,
        "told_ms_ago": None if told_ms is None else max(0, SYSTEM_CLOCK.now_ms() - int(told_ms)),
        "problems": problems,
        "warnings": [str(text) for text in report.get("warnings") or ()],
    }


def _print_agents(rows: list[dict[str, Any]], many: bool) -> None:
    from artimon.stack.status_view import table_of

    columns = ["agent", "mode", "version", "config", "lag", "oldest unacked", "log", "flows"]
    cells = []
    for row in rows:
        config = row["config"].get("running", "?") + (" REFUSED" if row["config"].get("refused") else "")
        log = f"{_mib(row['log_bytes'])} of {_mib(row['log_quota_bytes'])}"
        ages = [_seconds(row["lag_ms"]), _seconds(row["oldest_unacked_ms"])]
        one = [
            row["agent"],
            (row["mode"] or "?") if row["live"] else "gone",
            row["version"] or "?",
            config,
            *ages,
            log,
            str(len(row["flows"])),
        ]
        cells.append([escape_control(cell) for cell in ([row["cluster"], *one] if many else one)])
    table_of(["cluster", *columns] if many else columns, cells)
    for row in rows:
        for problem in row["problems"]:
            print(f"! {row['agent']}: {escape_control(problem)}")
        for warning in row["warnings"]:
            print(f"warning: {row['agent']}: {escape_control(warning)}")
    print(f"{sum(row['live'] for row in rows)} of {len(rows)} agents live")


def _seconds(ms: int | None) -> str:
    return "?" if ms is None else f"{ms / 1000:.1f} s"


def _mib(size: int | None) -> str:
    return "?" if size is None else f"{size / 2**20:.0f} MiB"


def _add(name: str, wait_s: float, text: str) -> None:
    """Add a command without arguments of its own."""

    @agents_app.command(name, help=text)
    def give(
        agent: AgentArgument, wait: WaitOption = wait_s, id: IdOption = "", zookeeper: ZookeepersOption = None
    ) -> None:
        _send_command(agent, name, {}, wait, id, zookeeper)


_DRAIN = "Take no new data and send the rest; done when all is acked. The agent stays drained until `resume`."
_add("drain", 600.0, _DRAIN)
_add("pause", 60.0, "Stop sending until `resume`; polled data waits in the log.")
_add("resume", 60.0, "End a pause or a drain.")


@agents_app.command("roll")
def roll(
    agent: AgentArgument,
    flow: Annotated[str, typer.Option("--flow", help="Close only the files of this flow.")] = "",
    wait: WaitOption = 60.0,
    id: IdOption = "",
    zookeeper: ZookeepersOption = None,
) -> None:
    """Close the open files (segment of the log, files of sinks) and start new ones."""
    _send_command(agent, "roll", {"flow": flow} if flow else {}, wait, id, zookeeper)


@agents_app.command("release")
def release(
    agent: AgentArgument,
    lane: Annotated[int, typer.Option("--lane", min=0, help="Number of the lane to release.")],
    wait: WaitOption = 60.0,
    id: IdOption = "",
    zookeeper: ZookeepersOption = None,
) -> None:
    """Release a lane from a site that is lost: batches sent to that site are sent to another one too."""
    _send_command(agent, "release", {"lane": str(lane)}, wait, id, zookeeper)


def _send_command(
    agent: str, name: str, arguments: dict[str, str], wait_s: float, id: str, zookeeper: list[str] | None
) -> None:
    """Give a command to an agent and print its answer; exits with 1 unless it is done."""
    from pipeline.control.admission import COMMAND_KIND, signed_command
    from pipeline.control.agent_commands import Command, CommandError

    clusters = choose_clusters(zookeeper, None)
    if len(clusters) > 1:
        raise typer.BadParameter("a command goes to one agent of one cluster: name one --zookeeper")
    now_ms = SYSTEM_CLOCK.now_ms()
    command = Command(id or uuid.uuid4().hex, name, arguments, now_ms, now_ms + round(max(wait_s, 60.0) * 1000))
    if (keys := operator_keys()) is not None:
        command = replace(command, signature=keys.sign(COMMAND_KIND, signed_command(agent, command)))

    def give(_: Cluster, tree: ControlTree) -> CommandAnswer | None:
        if agent not in tree.agents():
            print_error(f"artimon: agent {agent} is not live: it gets the command if it is back before the deadline")
        tree.send_command(agent, command)
        return _wait(tree, agent, command.id, wait_s)

    try:
        answers, good = run_in_each(clusters, give)
    except CommandError as problem:
        raise typer.BadParameter(str(problem)) from None
    answer = answers.get(clusters[0].name)
    if answer is not None:
        print(f"{escape_control(answer.state)}: {escape_control(answer.text)}")
    elif good and wait_s:
        print_error(f"artimon: no answer within {wait_s:g} s; ask again with --id {command.id}")
    elif good:
        print(command.id)
    if not good or (wait_s and (answer is None or answer.state != "done")):
        raise typer.Exit(1)


def _wait(tree: ControlTree, agent: str, id: str, wait_s: float) -> CommandAnswer | None:
    """Wait for the final answer, None if none comes in time."""
    changed, deadline = threading.Event(), monotonic() + (wait_s + GRACE_S if wait_s else 0.0)
    while (left := deadline - monotonic()) > 0:
        changed.clear()
        answer = tree.read_answer(agent, id, lambda _: changed.set())
        if answer is not None and answer.is_final:
            return answer
        changed.wait(min(left, 5.0))
    return None


@flows_app.command("list")
def list_flows(
    agent: Annotated[str, typer.Argument(metavar="[AGENT]", help="Agent whose flows are listed; default: all.")] = "",
    zookeeper: ZookeepersOption = None,
    clusters: ClustersOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the flows of the live agents with their state."""
    found, good = run_in_each(choose_clusters(zookeeper, clusters), lambda _, tree: tree.agents())
    rows = [
        {"cluster": cluster, "agent": name, **flow}
        for cluster, agents in found.items()
        for name, report in agents.items()
        if agent in ("", name)
        for flow in report.get("flows") or ()
        if isinstance(flow, dict)
    ]
    if as_json:
        print(json.dumps({"flows": rows}, indent=1))
    else:
        _print_flows(rows, many=len(found) > 1)
    if not good or any(row.get("problem") for row in rows):
        raise typer.Exit(1)


def _print_flows(rows: list[dict[str, Any]], many: bool) -> None:
    from artimon.stack.status_view import table_of

    columns = ["agent", "name", "state", "waiting", "oldest_ms", "problem"]
    columns = ["cluster", *columns] if many else columns
    table_of(columns, [[escape_control(row.get(column, "")) for column in columns] for row in rows])
    print(f"{len(rows)} flows")


@flows_app.command("check")
def check_flows(
    file: Annotated[typer.FileText, typer.Argument(metavar="FILE", help="File with flows, TOML or JSON.")],
) -> None:
    """Check that an agent could run the flows of a file; starts nothing."""
    from artimon.cli.commands.config import check_document
    from artimon.runtime.config_file import ConfigFileError, FileFormat
    from pipeline.control.config_document import ConfigError, read_text
    from pipeline.flows.config.flow_file import parse_flows
    from pipeline.flows.runtime.builtin_components import builtin_registry

    text = file.read()
    form: FileFormat = "json" if file.name.endswith(".json") else "toml"
    with exits(ConfigFileError), exits(ConfigError, where=f"{file.name}: "):
        flows = parse_flows(
            text, builtin_registry(), form, file.name, also=("metrics",)
        )  # first: its errors name the line
        check_document(read_text(text, file.name), pushed=False)
    print(f"{file.name}: {len(flows)} flows, all valid")
