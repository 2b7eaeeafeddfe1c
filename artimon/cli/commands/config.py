"""Commands for the configuration of agents: push, diff, history, rollback, status, keys."""

from __future__ import annotations

import difflib
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from artimon.cli.clusters import Cluster, ClustersOption, ZookeepersOption, choose_clusters, run_in_each
from artimon.cli.common import JsonOption, Panel, escape_control, exits, locate_settings, print_error, user_name
from artimon.model.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from pipeline.control.control_tree import ConfigVersion, ControlTree
    from pipeline.control.rollout import VersionId
    from pipeline.control.signatures import SigningKeys

PANEL = Panel.OPERATE
app = typer.Typer()
config_app = typer.Typer(no_args_is_help=True, help="The configuration of agents and of groups of agents.")
app.add_typer(config_app, name="config")

FileArgument = Annotated[
    typer.FileText, typer.Argument(metavar="FILE", help="Configuration in TOML or JSON, see docs/control.md.")
]
AgentOption = Annotated[str, typer.Option("--agent", help="Name of the agent that is configured.")]
GroupOption = Annotated[str, typer.Option("--group", help="Name of the group of agents that is configured.")]
NoteOption = Annotated[str, typer.Option("--note", help="Reason, shown in the history.")]


def check_document(found: Mapping[str, Any], pushed: bool = True) -> None:
    """Check a configuration as far as possible without its agent. `pushed`: also that it has no settings allowed only
    in files of the host. Raises ConfigError."""
    from pipeline.control.config_document import ConfigError, parse_document
    from pipeline.flows.config.flow_file import check_flows
    from pipeline.flows.config.host_file import UnknownHost
    from pipeline.flows.runtime.builtin_components import builtin_registry
    from pipeline.flows.spi import FlowError

    parse_document(found)
    registry, host = builtin_registry(), UnknownHost()
    flows = [flow for flow in found.get("flow", ()) if flow.get("off") is not True]
    try:
        for flow in flows if pushed else ():
            host.admit(flow, registry)
        if flows:
            check_flows([host.resolve(flow, registry) for flow in flows], registry, "flows")
    except (FlowError, ValueError) as error:
        raise ConfigError(str(error)) from None


def _scope(agent: str, group: str) -> str:
    from pipeline.control.control_tree import ControlPlaneError, scope_of

    if bool(agent) == bool(group):
        raise typer.BadParameter("name one of --agent and --group")
    try:
        return scope_of(agent, group)
    except ControlPlaneError as problem:
        raise typer.BadParameter(str(problem)) from None


def _read(file: typer.FileText) -> dict[str, Any]:
    from pipeline.control.config_document import ConfigError, read_text

    with exits(ConfigError, where=f"{file.name}: "):
        found = read_text(file.read(), file.name)
        check_document(found)
    return found


def operator_keys() -> SigningKeys | None:
    """Read the operator's keys: ARTIMON_CONFIG_KEYS, else those of the running stack. Exits with 2 if they are
    unusable."""
    from pipeline.control.signatures import KeyFileError, read_keys

    with exits(KeyFileError, code=2):
        return read_keys(locate_settings().config_keys)


def signer() -> Callable[[ConfigVersion], Mapping[str, str]] | None:
    """Return the function that signs a version; None without keys."""
    from pipeline.control.admission import CONFIG_KIND, signed_version

    keys = operator_keys()
    return None if keys is None else lambda version: keys.sign(CONFIG_KIND, signed_version(version))


def _warn_unsigned(found: Mapping[str, Any], signed: bool) -> None:
    from artimon.runtime.settings import zookeeper_auth
    from pipeline.control.config_document import changes_only_numbers

    if not signed and not zookeeper_auth() and not changes_only_numbers({}, found):
        print_error(
            "artimon: this configuration is not signed, so agents accept only changes of numbers: set "
            "ARTIMON_CONFIG_KEYS to the file of the agents' key (docs/security.md)"
        )


@config_app.command("push")
def push(
    file: FileArgument,
    agent: AgentOption = "",
    group: GroupOption = "",
    note: NoteOption = "",
    expect: Annotated[int | None, typer.Option("--expect", help="Fail unless this is the newest version.")] = None,
    wait: Annotated[
        float, typer.Option("--wait", min=0, help="Seconds to wait until every live agent that it concerns runs it.")
    ] = 0.0,
    zookeeper: ZookeepersOption = None,
    clusters: ClustersOption = None,
) -> None:
    """Make the file the newest configuration of an agent or a group, in every named cluster. It is checked first, and
    signed if ARTIMON_CONFIG_KEYS names a key file."""
    scope, found, sign = _scope(agent, group), _read(file), signer()
    _warn_unsigned(found, sign is not None)

    def act(cluster: Cluster, tree: ControlTree) -> bool:
        now_ms = SYSTEM_CLOCK.now_ms()
        stamp = tree.push(scope, found, now_ms=now_ms, by=user_name(), note=note, expected=expect, sign=sign)
        print(f"{cluster.name + ': ' if cluster.name else ''}{stamp}")
        return _await_verdicts(tree, stamp, wait)

    results, good = run_in_each(choose_clusters(zookeeper, clusters), act)
    if not good or not all(results.values()):
        raise typer.Exit(1)


@config_app.command("diff")
def diff(
    file: FileArgument,
    agent: AgentOption = "",
    group: GroupOption = "",
    zookeeper: ZookeepersOption = None,
    clusters: ClustersOption = None,
) -> None:
    """Show what a push of the file would change; exit 1 if it changes anything."""
    scope, found = _scope(agent, group), _read(file)
    results, good = run_in_each(choose_clusters(zookeeper, clusters), lambda _, tree: newest_version(tree, scope))
    same = True
    for name, version in results.items():
        old = {} if version is None else dict(version.document)
        title = "nothing" if version is None else str(version.stamp)
        same &= _show_difference(old, found, f"{name + ': ' if name else ''}{title}", file.name)
    if not good or not same:
        raise typer.Exit(1)


def _show_difference(old: dict[str, Any], new: dict[str, Any], title: str, name: str) -> bool:
    from pipeline.control.config_document import difference, parse_document

    change = difference(parse_document(old), parse_document(new))
    print(f"{title} -> {name}: {change}")
    before, after = (json.dumps(one, indent=1, sort_keys=True).splitlines() for one in (old, new))
    for line in difflib.unified_diff(before, after, title, name, lineterm=""):
        print(line)
    return change.is_empty


@config_app.command("history")
def history(
    agent: AgentOption = "",
    group: GroupOption = "",
    zookeeper: ZookeepersOption = None,
    clusters: ClustersOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the versions of an agent's or a group's configuration, newest first; by default the newest of each."""
    scope = _scope(agent, group) if agent or group else ""
    found, good = run_in_each(choose_clusters(zookeeper, clusters), lambda _, tree: _versions(tree, scope))
    rows = [{"cluster": name, **row} for name, versions in found.items() for row in versions]
    if as_json:
        print(json.dumps({"versions": rows}, indent=1))
    else:
        for row in rows:
            words = [row["cluster"], f"{row['scope']}@{row['number']}", row["made"], row["by"], row["note"]]
            words += [f"(rollback to {row['source']})"] if row["source"] is not None else []
            print("  ".join(escape_control(word) for word in words if word))
    if not good:
        raise typer.Exit(1)


def _versions(tree: ControlTree, scope: str) -> list[dict[str, Any]]:
    from datetime import UTC, datetime

    found = tree.history(scope) if scope else [one for name in tree.scopes() for one in tree.history(name)[:1]]
    return [
        {
            "scope": one.stamp.scope,
            "number": one.stamp.number,
            "made": datetime.fromtimestamp(one.made_ms / 1000, UTC).isoformat(timespec="seconds"),
            "by": one.by,
            "note": one.note,
            "source": one.source,
            "document": one.document,
        }
        for one in found
    ]


@config_app.command("show")
def show(
    agent: AgentOption = "",
    group: GroupOption = "",
    version: Annotated[int | None, typer.Option("--version", help="Version to print; default: the newest.")] = None,
    zookeeper: ZookeepersOption = None,
) -> None:
    """Print a configuration as JSON, ready to edit and push."""
    scope = _scope(agent, group)

    def act(_: Cluster, tree: ControlTree) -> ConfigVersion | None:
        return newest_version(tree, scope) if version is None else tree.version(scope, version)

    found, good = run_in_each(choose_clusters(zookeeper, None), act)
    for name, one in found.items():
        if one is None:
            print_error(f"artimon: {name + ': ' if name else ''}{scope} has no configuration")
            good = False
        else:
            print(json.dumps(one.document, indent=1, ensure_ascii=False))
    if not good:
        raise typer.Exit(1)


@config_app.command("rollback")
def rollback(
    agent: AgentOption = "",
    group: GroupOption = "",
    to: Annotated[
        int | None, typer.Option("--to", help="Version to go back to; default: the one before the newest.")
    ] = None,
    note: NoteOption = "",
    wait: Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait until all agents run it.")] = 0.0,
    zookeeper: ZookeepersOption = None,
    clusters: ClustersOption = None,
) -> None:
    """Push an older version again, as a new one: numbers only grow."""
    scope = _scope(agent, group)

    def act(cluster: Cluster, tree: ControlTree) -> bool:
        stamp = _push_again(tree, scope, to, note)
        print(f"{cluster.name + ': ' if cluster.name else ''}{stamp}")
        return _await_verdicts(tree, stamp, wait)

    results, good = run_in_each(choose_clusters(zookeeper, clusters), act)
    if not good or not all(results.values()):
        raise typer.Exit(1)


def _push_again(tree: ControlTree, scope: str, to: int | None, note: str) -> VersionId:
    from pipeline.control.control_tree import ControlPlaneError

    current = newest_version(tree, scope)
    if current is None:
        raise ControlPlaneError(f"{scope} has no configuration")
    number = current.stamp.number - 1 if to is None else to
    old = tree.version(scope, number)
    now_ms, expected = SYSTEM_CLOCK.now_ms(), current.stamp.number
    document, me, sign = old.document, user_name(), signer()
    return tree.push(scope, document, now_ms=now_ms, by=me, note=note, source=number, expected=expected, sign=sign)


@config_app.command("status")
def status(zookeeper: ZookeepersOption = None, clusters: ClustersOption = None, as_json: JsonOption = False) -> None:
    """Show which configuration each live agent runs or refuses, and why; exit 1 if one refuses."""
    found, good = run_in_each(choose_clusters(zookeeper, clusters), lambda _, tree: tree.agents())
    rows = [
        {"cluster": cluster, "agent": name, **{key: config.get(key) for key in ("wanted", "running", "refused")}}
        for cluster, agents in found.items()
        for name, report in agents.items()
        for config in [report.get("config") or {}]
    ]
    if as_json:
        print(json.dumps({"agents": rows}, indent=1))
    else:
        for row in rows:
            words = (row["cluster"], row["agent"], f"runs {row['running'] or '?'}")
            print("  ".join(escape_control(word) for word in words if word))
            if row["refused"]:
                print(f"! {row['agent']}: {escape_control(row['refused'])}")
    if not good or any(row["refused"] for row in rows):
        raise typer.Exit(1)


@config_app.command("key")
def key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to create; set ARTIMON_CONFIG_KEYS to it.")],
    id: Annotated[str, typer.Option("--id", help="Name of the key.")] = "operators",
) -> None:
    """Create a file with a new key that signs configuration and commands. Agents need a copy (--keys)."""
    from pipeline.control.signatures import KeyFileError, create_key_file

    with exits(OSError, KeyFileError):
        create_key_file(file, id)
    print(f"{file}: key {id}, readable only by its owner; copy it to the agents, readable only by their user")


@config_app.command("secure")
def secure(
    closed: Annotated[
        bool, typer.Option("--closed", help="Applications too must show ARTIMON_ZOOKEEPER_AUTH to register.")
    ] = False,
    zookeeper: ZookeepersOption = None,
    clusters: ClustersOption = None,
) -> None:
    """Restrict Artimon's nodes in ZooKeeper to the user of ARTIMON_ZOOKEEPER_AUTH."""
    from artimon.runtime.settings import zookeeper_auth
    from pipeline.control.access import restrict_access

    digest = zookeeper_auth()
    if not digest:
        print_error(
            "artimon: set ARTIMON_ZOOKEEPER_AUTH to a file that holds user:password, here and for every process"
        )
        raise typer.Exit(2)

    def act(cluster: Cluster, tree: ControlTree) -> None:
        count = restrict_access(tree.client, digest, closed)
        print(f"{cluster.name + ': ' if cluster.name else ''}{count} nodes now belong to {digest.partition(':')[0]}")
        if scopes := tree.scopes():
            print(f"  check what was pushed before, agents trust it from now on: {', '.join(scopes)}")

    _, good = run_in_each(choose_clusters(zookeeper, clusters), act)
    if not good:
        raise typer.Exit(1)


def newest_version(tree: ControlTree, scope: str) -> ConfigVersion | None:
    """Return the current version of a scope, None if it has none."""
    versions = tree.history(scope)
    return versions[0] if versions else None


def _await_verdicts(tree: ControlTree, stamp: VersionId, wait_s: float) -> bool:
    """Wait until every live agent of the scope has accepted or refused the version; True if all have accepted, or if
    `wait_s` is 0."""
    deadline, pause = monotonic() + wait_s, threading.Event()
    while wait_s:
        concerned = {name: one for name, one in tree.agents().items() if in_scope(name, one, stamp.scope)}
        verdicts = {name: verdict(one.get("config") or {}, stamp) for name, one in concerned.items()}
        if all(verdicts.values()) or monotonic() >= deadline:
            for name, text in sorted(verdicts.items()):
                print(f"  {name}: {escape_control(text) or 'no report yet'}")
            return all(text == "good" for text in verdicts.values())
        pause.wait(0.5)
    return True


def in_scope(name: str, report: Mapping[str, Any], scope: str) -> bool:
    """True if the configuration of the scope applies to the agent."""
    return scope == f"agent/{name}" or scope in {f"group/{group}" for group in report.get("groups") or ()}


def verdict(config: Mapping[str, Any], stamp: VersionId) -> str:
    """Return an agent's verdict on a version: "good", "refused: …", or "" while it has not decided."""
    if str(stamp) in str(config.get("good", "")).split():
        return "good"
    for text in config.get("kept_out") or ():
        if str(text).startswith(f"{stamp} "):
            return f"refused: {text}"
    if config.get("refused") and str(stamp) in str(config.get("wanted", "")).split():
        return f"refused: {config['refused']}"
    return ""
