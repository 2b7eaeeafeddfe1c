"""The command `artimon`. Data goes to standard output, messages to standard error; exit codes 0 good, 1 bad, 2 misuse.

Commands import what they need when they run, so that each process loads its own part only."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from artimon import settings as settings_module
from artimon.settings import Settings

app = typer.Typer(
    name="artimon",
    help="Typed, labelled variables: collected, stored exactly once, asked by equivalence classes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)

rules_app = typer.Typer(no_args_is_help=True, help="Rule files of alerts.")
app.add_typer(rules_app, name="rules")

DataOption = Annotated[Path | None, typer.Option("--data", help="Data folder of the stack (ARTIMON_DATA).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ZookeeperOption = Annotated[str | None, typer.Option(help="host:port (ARTIMON_ZOOKEEPER, else the running stack's).")]
KafkaOption = Annotated[str | None, typer.Option(help="host:port (ARTIMON_KAFKA, else the running stack's).")]
HdfsOption = Annotated[str | None, typer.Option(help="URI (ARTIMON_HDFS, else the running stack's).")]
HealthOption = Annotated[Path | None, typer.Option(help="File in which the process says how it is.")]


def say(text: str) -> None:
    """A message to the person at the terminal."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Entry point. Errors of ours are one line; any other is a defect and keeps its traceback."""
    from artimon.stack.errors import JavaMissing, StackError

    try:
        app()
    except JavaMissing as problem:
        say(f"artimon: {problem}")
        sys.exit(2)
    except StackError as problem:
        say(f"artimon: {problem}")
        sys.exit(1)


def located(data: Path | None = None) -> Settings:
    """Settings in which the default places are replaced by those of the running stack on the data folder."""
    from artimon.stack import locate

    return locate.located(data)


def asked_store(zookeeper: str | None, data: Path | None) -> str:
    """Where questions go: the ZooKeeper named, else that of the stack on `data`; a folder named must have a stack."""
    from artimon.stack import locate

    return locate.asked_store(zookeeper, data)


def _duration(text: str) -> str:
    """Refuses at the command line what is no period of at least a second."""
    from artimon.processes import duration_ms

    try:
        good = duration_ms(text) >= 1000
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None
    if not good:
        raise typer.BadParameter(f"{text} is too short: use at least 1s")
    return text


def _bean_servers(texts: list[str] | None) -> list[str]:
    """Refuses at the command line what names no bean server."""
    from sources.errors import TargetError
    from sources.jmx_target import parse_target

    try:
        for text in texts or ():
            parse_target(text)
    except TargetError as problem:
        raise typer.BadParameter(str(problem)) from None
    return texts or []


def _mapping_rules(paths: list[Path] | None) -> list[Path]:
    """Refuses at the command line what is no file of mapping rules, with line and column."""
    from sources.errors import JmxRulesError
    from sources.jmx_rule_file import read_rules

    try:
        for path in paths or ():
            read_rules(path)
    except JmxRulesError as problem:
        raise typer.BadParameter(str(problem)) from None
    return paths or []


# ---- the stack -------------------------------------------------------------------------------------------------------


@app.command()
def up(
    data: DataOption = None,
    parts: Annotated[str, typer.Option(help="Parts or groups (base, hdfs, shards, all, examples), by comma.")] = "all",
    poll: Annotated[str, typer.Option(help="Period of the agent's polls.", callback=_duration)] = "60s",
    level: Annotated[Literal["kafka", "hdfs"], typer.Option(help="Ack level.")] = "hdfs",
    capacity: Annotated[int, typer.Option(min=1, help="Series that a shard has room for.")] = 1_000_000,
    base_port: Annotated[
        int | None,
        typer.Option(min=1, max=65_000, help="Free ports from here on (a folder keeps those of its last run)."),
    ] = None,
    prove: Annotated[int | None, typer.Option(min=1, help="Run so many seconds, then prove the figures.")] = None,
    detach: Annotated[bool, typer.Option(help="Return when everything is up.")] = False,
) -> None:
    """Start the whole stack on this machine and keep it running until Ctrl-C."""
    from artimon.stack import foreground
    from artimon.stack.stack import Stack

    place = located(data)
    options = {"poll": poll, "level": level, "capacity": str(capacity)}
    if detach and prove is None:
        arguments = ["--data", str(place.data), "--parts", parts, "--poll", poll, "--level", level]
        arguments += ["--capacity", str(capacity)]
        arguments += [] if base_port is None else ["--base-port", str(base_port)]
        foreground.start_detached(arguments, place.data, say)
        return
    stack = Stack(place.data, parts.split(","), base_port=base_port, options=options)
    if prove is None:
        raise typer.Exit(foreground.run_stack(stack, say))
    from artimon import processes

    seconds = prove
    raise typer.Exit(foreground.run_stack(stack, say, lambda running, stop: processes.prove(running, seconds, stop)))


@app.command()
def down(data: DataOption = None) -> None:
    """Stop the stack, in order, and wait for its end."""
    from artimon.stack import foreground

    place = located(data)
    say("stopped" if foreground.stop_running(place.data, say) else f"nothing runs on {place.data}")


@app.command()
def status(data: DataOption = None, as_json: JsonOption = False) -> None:
    """Say how every part and hop is; exit 1 if one is unhealthy."""
    from artimon.stack.status import read_status
    from artimon.stack.status_view import show

    found = read_status(located(data).data)
    if as_json:
        print(json.dumps(found.to_json(), indent=1))
    else:
        show(found)
    raise typer.Exit(0 if found.healthy else 1)


@app.command()
def env(data: DataOption = None, as_json: JsonOption = False) -> None:
    """Print where everything is, as shell exports: eval "$(artimon env)"."""
    from artimon.stack.status import running_state

    places = running_state(located(data).data).addresses
    if as_json:
        print(json.dumps(places, indent=1))
    else:
        print("\n".join(f"export {name}={shlex.quote(value)}" for name, value in places.items()))


@app.command()
def logs(
    part: Annotated[str | None, typer.Argument(help="One part; without it all.")] = None,
    data: DataOption = None,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="So many last lines.")] = 50,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until Ctrl-C.")] = False,
) -> None:
    """Print the parts' logs."""
    import threading

    from artimon.stack import logs as stack_logs
    from artimon.stack.errors import UnknownPart

    folder = located(data).data / "logs"
    paths = {path.stem: path for path in sorted(folder.glob("*.log"))}
    if not paths:
        say(f"artimon: no stack has run on {folder.parent}: there are no logs")
        raise typer.Exit(1)
    if part is not None and part not in paths:
        raise UnknownPart(part, sorted(paths))
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
    """Say what is wrong here and how to fix it; exit 1 on a required failure."""
    from dataclasses import asdict

    from artimon.stack.doctor import Mark, examine
    from artimon.stack.status_view import show_check

    place = located(data)
    failed, found = False, []
    for check in examine(place, place.data, verify_jars=verify):
        failed = failed or check.mark is Mark.FAILED
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
    """Run a benchmark of the repository; what follows its name is handed on to it."""
    from artimon.stack.bench import run_benchmark

    raise typer.Exit(run_benchmark(name, context.args, as_json, say))


@app.command()
def setup(
    verify: Annotated[bool, typer.Option(help="Check the digest of every jar.")] = False,
    programs: Annotated[str, typer.Option(help="Debian programs to have too, by comma, or all.")] = "",
) -> None:
    """Find a fit Java and retrieve the jars of the servers; ./scripts/setup calls this."""
    from artimon.stack import jars
    from artimon.stack.java import find_java

    place = settings_module.load()
    java = find_java(place)
    folder = jars.ensure(place, java, {jar.jar_set for jar in jars.read_lock()}, say, verify=verify)
    say(f"Java {java.version} at {java.program}; jars in {folder}")
    if programs:
        _setup_programs(programs, place)


def _setup_programs(names: str, place: Settings) -> None:
    """Without a program what needs it is left out; where nobody would read that (CI) it is a failure."""
    from artimon.stack.programs import NEEDS, ProgramsMissing, ensure

    wanted = list(NEEDS) if names == "all" else names.split(",")
    unknown = sorted(set(wanted) - set(NEEDS))
    if unknown:
        raise typer.BadParameter(f"no program {unknown[0]!r}; there are {', '.join(NEEDS)}")
    try:
        for name, program in ensure(wanted, place.cache, say).items():
            say(f"{name} at {program.path}")
    except ProgramsMissing as problem:
        if place.ci:
            raise
        say(f"artimon: {problem}; what needs it is left out")


# ---- the processes of the stack --------------------------------------------------------------------------------------


@app.command()
def collector(
    identity: Annotated[str, typer.Option("--id")] = "collector-0",
    zookeeper: ZookeeperOption = None,
    kafka: KafkaOption = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on, 0 for any.")] = 0,
    health: HealthOption = None,
) -> None:
    """Run a collector."""
    from artimon import processes

    place = located()
    processes.collector(
        identity=identity,
        zookeeper=zookeeper or place.zookeeper,
        kafka=kafka or place.kafka,
        port=port,
        health=health,
    )


@app.command()
def agent(
    name: Annotated[str, typer.Option(help="Name of the agent, for ever the same.")] = "local",
    zookeeper: ZookeeperOption = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the log and the source's state.")] = None,
    poll: Annotated[str, typer.Option(help="Period of the polls, such as 60s.", callback=_duration)] = "60s",
    level: Annotated[Literal["kafka", "hdfs"], typer.Option(help="Ack level.")] = "hdfs",
    host_metrics: Annotated[bool, typer.Option(help="Read this host's own figures too.")] = True,
    labels_rules: Annotated[Path | None, typer.Option(help="Rules that give labels by address.")] = None,
    dropin: Annotated[Path | None, typer.Option(help="Folder of drop-in files (ARTIMON_DROPIN).")] = None,
    jmx: Annotated[
        list[str] | None,
        typer.Option(help="A bean server, CONTEXT=http://HOST:PORT/jmx; may be repeated.", callback=_bean_servers),
    ] = None,
    jmx_rules: Annotated[
        list[Path] | None,
        typer.Option(help="A file of mapping rules besides the shipped ones.", callback=_mapping_rules),
    ] = None,
    health: HealthOption = None,
) -> None:
    """Run an agent."""
    from artimon import processes

    place = located()
    processes.agent(
        name=name,
        zookeeper=zookeeper or place.zookeeper,
        data=data or place.data / "agent",
        poll=poll,
        level=level,
        host_metrics=host_metrics,
        labels_rules=labels_rules,
        dropin=dropin or place.dropin,
        jmx=jmx or (),
        jmx_rules=jmx_rules or (),
        health=health,
    )


@app.command()
def shard(
    identity: Annotated[str, typer.Option("--id")] = "0",
    members: Annotated[str, typer.Option(help="Ids of all shards, by comma.")] = "0",
    zookeeper: ZookeeperOption = None,
    kafka: KafkaOption = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on, 0 for any.")] = 0,
    capacity: Annotated[int, typer.Option(min=1, help="Series that there is room for.")] = 1_000_000,
    health: HealthOption = None,
) -> None:
    """Run a memory shard."""
    from artimon import processes

    place = located()
    processes.shard(
        identity=identity,
        members=tuple(members.split(",")),
        zookeeper=zookeeper or place.zookeeper,
        kafka=kafka or place.kafka,
        port=port,
        capacity=capacity,
        health=health,
    )


@app.command()
def spark(
    zookeeper: ZookeeperOption = None,
    kafka: KafkaOption = None,
    hdfs: HdfsOption = None,
    data: Annotated[Path | None, typer.Option(help="Local folder of the checkpoints.")] = None,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[4,4]",
    driver_memory: Annotated[str, typer.Option(help="Heap of the driver's JVM.")] = "1g",
    jars: Annotated[str, typer.Option(help="The connector's jars, by comma.")] = "",
    raw_interval: Annotated[
        str, typer.Option(help="How often the raw table gets an append.", callback=_duration)
    ] = "30s",
    health: HealthOption = None,
) -> None:
    """Run the Spark application: raw table and buckets."""
    from artimon import processes

    place = located()
    processes.spark(
        zookeeper=zookeeper or place.zookeeper,
        kafka=kafka or place.kafka,
        hdfs=hdfs or place.hdfs,
        data=data or place.data / "spark",
        master=master,
        driver_memory=driver_memory,
        jars=tuple(jar for jar in jars.split(",") if jar),
        raw_interval=raw_interval,
        health=health,
    )


@app.command()
def api(
    zookeeper: ZookeeperOption = None,
    data: DataOption = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port of HTTP, 0 for any.")] = 8780,
    thrift_port: Annotated[int, typer.Option(min=0, max=65_535, help="Port of Thrift, 0 for any.")] = 8781,
    limit: Annotated[list[str] | None, typer.Option(help="NAME=NUMBER: another limit, see docs/api.md.")] = None,
    health: HealthOption = None,
) -> None:
    """Run the API on 127.0.0.1: HTTP with the page, and the Thrift service Matrix."""
    from artimon import processes
    from artimon.api.limits import BadLimit, Limits

    try:
        Limits().changed(limit or ())
    except BadLimit as problem:
        raise typer.BadParameter(str(problem)) from None
    place = located(data)
    processes.api(
        zookeeper=zookeeper or place.zookeeper,
        data=place.data,
        port=port,
        thrift_port=thrift_port,
        health=health,
        limits=limit or (),
    )


@app.command()
def smtp(
    zookeeper: ZookeeperOption = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on, 0 for any.")] = 8725,
    data: DataOption = None,
    health: HealthOption = None,
) -> None:
    """Run an SMTP server on 127.0.0.1 that keeps every mail in the folder `mail` of the data folder."""
    from artimon import processes

    place = located(data)
    processes.smtp(zookeeper=zookeeper or place.zookeeper, port=port, data=place.data, health=health)


@app.command()
def alerts(
    zookeeper: ZookeeperOption = None,
    rules: Annotated[Path | None, typer.Option(help="Folder of the rule files.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the engine's state, of one engine only.")] = None,
    smtp: Annotated[str | None, typer.Option(help="host:port of the mail server (ARTIMON_SMTP).")] = None,
    smtp_settings: Annotated[
        Path | None, typer.Option(help="JSON file, mode 0600: starttls, ca, user, password, sender.")
    ] = None,
    link: Annotated[str | None, typer.Option(help="Address of the page, for the links in mails.")] = None,
    to: Annotated[list[str] | None, typer.Option(help="Where mails of rules without receivers go.")] = None,
    sender: Annotated[str, typer.Option(help="From whom mails are.")] = "artimon@localhost",
    settle: Annotated[
        str, typer.Option(help="How long after its end a bucket counts as settled.", callback=_duration)
    ] = "15s",
    identity: Annotated[str, typer.Option("--id", help="Name of this engine.")] = "alerts",
    health: HealthOption = None,
) -> None:
    """Run the alert engine."""
    from artimon import processes

    place = located()
    folder = data or place.data / "alerts"
    processes.alerts(
        zookeeper=zookeeper or place.zookeeper,
        rules=rules or folder / "rules",
        data=folder,
        smtp=smtp or place.smtp,
        link=place.api if link is None else link,
        to=tuple(to or ("artimon@localhost",)),
        sender=sender,
        smtp_settings=smtp_settings,
        settle=settle,
        identity=identity,
        health=health,
    )


# ---- questions -------------------------------------------------------------------------------------------------------


@app.command()
def query(
    text: Annotated[str, typer.Argument(help="The question, such as \"fetch('host.cpu.ms').rate()\".")],
    zookeeper: ZookeeperOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask the memory shards."""
    from artimon import processes

    raise typer.Exit(processes.query(text, zookeeper=asked_store(zookeeper, data), as_json=as_json))


@app.command()
def find(
    selector: Annotated[str, typer.Argument(help="A selector, such as 'host.*' or 'http.requests{route=\"/\"}'.")],
    zookeeper: ZookeeperOption = None,
    data: DataOption = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many series.")] = 1000,
    as_json: JsonOption = False,
) -> None:
    """List the series that a selector matches."""
    from artimon import processes

    place = asked_store(zookeeper, data)
    raise typer.Exit(processes.find(selector, zookeeper=place, limit=limit, as_json=as_json))


@app.command()
def mail(
    data: DataOption = None,
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, help="So many newest mails.")] = 20,
    full: Annotated[bool, typer.Option(help="Print the text of each mail too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the mails that the stack's SMTP server has kept, newest last."""
    from artimon import processes

    raise typer.Exit(processes.mail(located(data).data, count=lines, as_json=as_json, full=full))


@rules_app.command("check")
def rules_check(
    files: Annotated[list[Path], typer.Argument(help="Rule files; those that belong together at once.")],
) -> None:
    """Say everything that is wrong with rule files, with line and column; exit 1 if anything is."""
    from artimon import processes

    raise typer.Exit(processes.check_rules(files))


if __name__ == "__main__":
    main()
