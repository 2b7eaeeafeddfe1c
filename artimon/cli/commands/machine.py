"""Commands that set up, start, check and stop a stack on this machine."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from artimon.cli.common import (
    DataOption,
    JsonOption,
    Panel,
    ZookeeperOption,
    locate_settings,
    option_validator,
    print_error,
)
from artimon.runtime import settings as settings_module
from artimon.runtime.text import parse_period

if TYPE_CHECKING:
    from alerts.pair.engine_lease import PairStatus
    from artimon.api.fleet_status import FleetStatus

PANEL = Panel.MACHINE
STACK_JARS = "hdfs,kafka,spark"
"""Sets of jars that `artimon up` needs."""
CONNECT_S = 10.0
"""Timeout of the connection to ZooKeeper, in seconds."""
STATES = ("up", "failing", "missing", "silent")
app = typer.Typer()


def _keep_days(text: str) -> object:
    from pipeline.compaction.compaction_settings import parse_keep

    return parse_keep(text)


def _keep_rules(texts: list[str]) -> object:
    from sources.state.retention_rules import parse_retention_rules

    return parse_retention_rules(texts)


DaysOption = Annotated[
    str,
    typer.Option(
        "--keep",
        help="CLASS=DAYS, by comma: retention of each class of samples; * means all others.",
        callback=option_validator(_keep_days),
    ),
]
KeepClassOption = Annotated[
    list[str] | None,
    typer.Option(
        "--keep-class",
        help="PATTERN=CLASS: retention class of variables whose name matches (see `--keep` of the compactor); may be "
        "repeated, the first match wins.",
        callback=option_validator(_keep_rules),
    ),
]


@app.command()
def up(
    context: typer.Context,
    data: DataOption = None,
    parts: Annotated[str, typer.Option(help="Parts or groups (base, hdfs, shards, all, examples), by comma.")] = "all",
    poll: Annotated[
        str, typer.Option(help="Period of the agent's polls.", callback=option_validator(parse_period))
    ] = "60s",
    level: Annotated[Literal["kafka", "hdfs"], typer.Option(help="Ack level.")] = "hdfs",
    capacity: Annotated[
        int, typer.Option(min=0, help="Maximum series per shard (0: as memory allows, at most 4 million).")
    ] = 0,
    shards: Annotated[int, typer.Option(min=1, max=64, help="Processes of the memory store.")] = 2,
    replicas: Annotated[int, typer.Option(min=1, max=64, help="Initial number of shards that hold each series.")] = 1,
    brokers: Annotated[
        int,
        typer.Option(min=1, max=9, help="Kafka brokers; from 3 on every partition has 3 copies, 2 of them in sync."),
    ] = 1,
    keep: DaysOption = "*=400",
    keep_class: KeepClassOption = None,
    base_port: Annotated[
        int | None,
        typer.Option(min=1, max=65_000, help="Search for free ports from this one on; a data folder keeps its ports."),
    ] = None,
    access: Annotated[
        Path | None, typer.Option(help="Access file: users, roles and tokens of the API (docs/access.md).")
    ] = None,
    browser: Annotated[
        bool,
        typer.Option("--browser", help="Open the first steps in a browser; not in CI, without terminal or display."),
    ] = False,
    detach: Annotated[bool, typer.Option(help="Return when everything is up.")] = False,
) -> None:
    """Start the whole stack on this machine and keep it running until Ctrl-C."""
    # `context.obj`: a job of scripts/proof that runs on the stack and then ends it
    from artimon.stack import foreground
    from artimon.stack.artimon_parts import cli_arguments
    from artimon.stack.stack import Stack

    place = locate_settings(data)
    if replicas > shards:
        raise typer.BadParameter(f"{replicas} replicas need as many shards")
    if detach and context.obj is not None:
        raise typer.BadParameter("a proof runs in the foreground: leave out --detach")
    store = {"capacity": str(capacity), "shards": str(shards), "replicas": str(replicas), "brokers": str(brokers)}
    options = {"poll": poll, "level": level, "keep": keep, "keep_class": "\n".join(keep_class or ()), **store}
    options |= _access_options(access)
    if detach:
        named = [name for name in options if name != "api_scheme"]
        arguments = ["--data", str(place.data), "--parts", parts, *cli_arguments(options, *named)]
        arguments += [] if base_port is None else ["--base-port", str(base_port)]
        foreground.start_detached(arguments, place.data, print_error)
        return
    stack = Stack(place.data, parts.split(","), base_port=base_port, options=options)
    show = foreground.browser_opener(settings_module.load()) if browser else None
    raise typer.Exit(foreground.run_stack(stack, print_error, context.obj, show))


def _access_options(file: Path | None) -> dict[str, str]:
    """Return the options of a stack with this access file. Exits with 2 if the file is invalid."""
    if file is None:
        return {}
    from artimon.access.access_file import read_access
    from artimon.runtime.config_file import ConfigFileError

    try:
        access = read_access(file)
    except ConfigFileError as problem:
        print_error(str(problem))
        raise typer.Exit(2) from None
    return {"access": str(file.absolute()), "api_scheme": "https" if access.certificate else "http"}


@app.command()
def down(data: DataOption = None) -> None:
    """Stop the stack in an orderly way and wait for its end."""
    from artimon.stack import foreground

    place = locate_settings(data)
    print_error("stopped" if foreground.stop_running(place.data, print_error) else f"nothing runs on {place.data}")


@app.command()
def status(
    data: DataOption = None,
    as_json: JsonOption = False,
    cluster: Annotated[bool, typer.Option(help="Show the processes on all machines, from their own reports.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="With --cluster: list healthy processes, too.")] = False,
    zookeeper: ZookeeperOption = None,
) -> None:
    """Show the state of every part and hop; exit 1 if there is a problem. With --cluster or --zookeeper, a summary of
    all processes of Artimon in the cluster, and those with a problem."""
    if cluster or zookeeper:
        raise typer.Exit(_show_cluster(zookeeper, data, as_json, all_))
    from artimon.stack.status import read_status
    from artimon.stack.status_view import show

    found = read_status(locate_settings(data).data)
    if as_json:
        print(json.dumps(found.to_json(), indent=1))
    else:
        show(found)
    raise typer.Exit(0 if found.healthy else 1)


def _show_cluster(zookeeper: str | None, data: Path | None, as_json: bool, all_: bool) -> int:
    """Print the numbers of processes by role and the processes with problems; returns the exit code."""
    from dataclasses import asdict

    from artimon.api.fleet_status import PROBLEMS, read_fleet
    from artimon.model.clock import SYSTEM_CLOCK
    from artimon.stack.stack_location import zookeeper_of_store
    from artimon.stack.status_view import table_of
    from varstore.cluster.varstore_client import VarstoreClient

    place = zookeeper_of_store(zookeeper, data)
    with VarstoreClient(place) as store:
        found = read_fleet(store, SYSTEM_CLOCK.now_ms())
    pairs = _alert_pairs(place)
    if as_json:
        told = {"alert_pairs": [asdict(one) for one in pairs]} if pairs else {}
        print(json.dumps({**found.to_json(len(found.processes)), **told}, indent=1))
        return 1 if found.problems else 0
    table_of(["role", *STATES, "versions"], _summary(found))
    rows = [
        [one.role, one.host, one.instance, one.version, one.state, _mebibytes(one.resident_bytes), one.problem]
        for one in found.processes
        if all_ or one.problem
    ]
    if rows:
        print()
        table_of(["role", "host", "process", "version", "state", "MiB", "problem"], rows if all_ else rows[:PROBLEMS])
    if len(rows) > PROBLEMS and not all_:
        print(f"… and {len(rows) - PROBLEMS:,} more: `--all` lists every process, `--json` too")
    if pairs:
        print()
        table_of(["alert engines", "engine", "role", "API"], [row for one in pairs for row in _pair_rows(one)])
    for text in (*([found.problem] if found.problem else ()), *found.warnings):
        print(f"warning: {text}")
    print(f"{'NOT healthy' if found.problems else 'healthy'}; {len(found.processes):,} processes")
    return 1 if found.problems else 0


def _alert_pairs(zookeeper: str) -> list[PairStatus]:
    """Return the pairs of alert engines; [] if ZooKeeper does not answer, which is a problem of all processes."""
    from alerts.pair.engine_lease import read_pairs
    from artimon.runtime.zookeeper_client import zookeeper_session
    from artimon.runtime.zookeeper_watcher import ZOOKEEPER_ERRORS

    try:
        with zookeeper_session(zookeeper, CONNECT_S) as client:
            return read_pairs(client)
    except (*ZOOKEEPER_ERRORS, ValueError) as error:
        print_error(f"artimon: the pairs of alert engines cannot be read: {type(error).__name__}: {error}")
        return []


def _pair_rows(pair: PairStatus) -> list[list[str]]:
    from artimon.runtime.text import format_utc

    leader = pair.leader
    names = sorted({*(one.id for one in pair.engines), *([leader.id] if leader else [])})
    api = {one.id: one.api for one in pair.engines}
    leads = "" if leader is None else f"leads since {format_utc(leader.since_ms)}"
    return [
        [pair.name, name, leads if leader and name == leader.id else "follows", api.get(name, "gone")] for name in names
    ]


def _summary(found: FleetStatus) -> list[list[str]]:
    """Return a row for each role."""
    versions = found.versions()
    return [
        [
            role,
            *(f"{states.get(state, 0):,}" for state in STATES),
            ", ".join(f"{version} ({count:,})" for version, count in versions.get(role, {}).items()),
        ]
        for role, states in found.roles().items()
    ]


def _mebibytes(found: int | None) -> str:
    return "" if found is None else f"{found / 2**20:.0f}"


@app.command()
def env(data: DataOption = None, as_json: JsonOption = False) -> None:
    """Print the addresses of the servers as shell exports: eval "$(artimon env)"."""
    from artimon.stack.stack_state import running_state

    places = running_state(locate_settings(data).data).addresses
    if as_json:
        print(json.dumps(places, indent=1))
    else:
        print("\n".join(f"export {name}={shlex.quote(value)}" for name, value in places.items()))


@app.command()
def logs(
    part: Annotated[str | None, typer.Argument(help="One part; default: all.")] = None,
    data: DataOption = None,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="Number of last lines.")] = 50,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Print new lines until Ctrl-C.")] = False,
) -> None:
    """Print the parts' logs."""
    import threading

    from artimon.stack import log_follower as stack_logs
    from artimon.stack.stack_errors import UnknownPartError

    folder = locate_settings(data).data / "logs"
    paths = {path.stem: path for path in sorted(folder.glob("*.log"))}
    if not paths:
        print_error(f"artimon: no stack has run on {folder.parent}: there are no logs")
        raise typer.Exit(1)
    if part is not None and part not in paths:
        raise UnknownPartError(part, sorted(paths))
    chosen = paths if part is None else {part: paths[part]}
    width = max(map(len, chosen), default=0)
    prefix = {name: f"{name:<{width}} | " if part is None else "" for name in chosen}
    for name, path in chosen.items():
        for line in stack_logs.tail(path, lines):
            print(f"{prefix[name]}{line}")
    if follow:
        try:
            for name, line in stack_logs.follow(chosen, threading.Event()):
                print(f"{prefix[name]}{line}", flush=True)
        except KeyboardInterrupt:
            return


@app.command()
def doctor(
    data: DataOption = None,
    as_json: JsonOption = False,
    verify: Annotated[bool, typer.Option(help="Check the digest of every jar.")] = False,
) -> None:
    """Check this machine and the stack, and print fixes; exit 1 if a required check fails."""
    from dataclasses import asdict

    from artimon.stack.doctor import CheckResult, run_checks
    from artimon.stack.status_view import show_check

    place = locate_settings(data)
    failed, found = False, []
    for check in run_checks(place, place.data, verify_jars=verify):
        failed = failed or check.mark is CheckResult.FAILED
        found.append(asdict(check))
        if not as_json:
            show_check(check)
    if as_json:
        print(json.dumps({"good": not failed, "checks": found}, indent=1))
    raise typer.Exit(1 if failed else 0)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of a module of benchmarks/.")],
    as_json: JsonOption = False,
) -> None:
    """Run a benchmark of the repository; further arguments are passed to it."""
    from artimon.stack.bench import run_benchmark

    raise typer.Exit(run_benchmark(name, context.args, as_json, print_error))


@app.command()
def setup(
    verify: Annotated[bool, typer.Option(help="Check the digest of every jar.")] = False,
    sets: Annotated[str, typer.Option("--jars", help="Sets of artimon/stack/jars.lock by comma, or all.")] = STACK_JARS,
    classes: Annotated[
        bool, typer.Option("--classes", help="Record the classes of the servers, which then start faster.")
    ] = False,
) -> None:
    """Find a suitable Java and retrieve the jars of the servers; ./scripts/setup calls this."""
    from artimon.stack import jars
    from artimon.stack.class_recording import record_classes
    from artimon.stack.java import find_java

    place = settings_module.load()
    java = find_java(place)
    known = {jar.jar_set for jar in jars.read_lock()}
    wanted = known if sets == "all" else set(sets.split(","))
    if unknown := wanted - known:
        raise typer.BadParameter(f"{min(unknown)!r}: the sets are {', '.join(sorted(known))}", param_hint="--jars")
    folder = jars.ensure_jars(place, java, wanted, print_error, verify=verify)
    if classes:
        record_classes(place, java, print_error)
    print_error(f"Java {java.version} at {java.program}; jars in {folder}")
