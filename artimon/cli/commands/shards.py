"""Commands for the shards of the memory store: membership, ownership of virtual shards, and limits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from artimon.cli.clusters import Cluster, connect_cluster
from artimon.cli.common import DataOption, JsonOption, Panel, ZookeeperOption, exits, locate_settings, print_error
from artimon.runtime.text import printable

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from varstore.cluster.cluster_directory import ClusterState
    from varstore.cluster.membership import Membership

PANEL = Panel.OPERATE
app = typer.Typer()
shards_app = typer.Typer(no_args_is_help=True, help="The shards of the memory store.")
app.add_typer(shards_app, name="shards")

REQUEST_TIMEOUT_S = 5.0

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of a shard, as `artimon shard --id` has it.")]


@shards_app.command("list")
def list_shards(zookeeper: ZookeeperOption = None, data: DataOption = None, as_json: JsonOption = False) -> None:
    """List the member shards, which of them are live, and the virtual shards of each."""
    shards = _read(zookeeper, data)
    found = shards_json(shards)
    if as_json:
        print(json.dumps(found, indent=1))
        return
    print(shards.membership)
    for one in found["shards"]:
        print("  ".join(_cells(one)))


def _cells(one: dict[str, Any]) -> list[str]:
    state = "member" if one["member"] else "no member"
    held = f"{one['ready']} of {one['wanted']} virtual shards"
    more = [f"{one[name]} {name}" for name in ("refilling", "lagging", "lacking", "extra") if one[name]]
    return [f"{one['id']:<8}", f"{state:<9}", f"{one['address'] or 'not there':<21}", held, *more]


def shards_json(shards: ClusterState) -> dict[str, Any]:
    """Count the virtual shards of every member and every other live shard, by state. `wanted`: assigned to it; `ready`:
    complete; `refilling`: not yet complete; `lagging`: behind Kafka; `lacking`: without data that Kafka deleted before
    the shard read it; `extra`: held until their new holders have them."""
    membership = shards.membership
    live = {place.id: place for place in shards.live}
    names = [*membership.members, *(name for name in sorted(live) if name not in membership.members)]
    rows = []
    for name in names:
        place, wanted = live.get(name), membership.owned_by(name)
        held, ready, lagging = (place.held_vshards, place.ready_vshards, place.lagging_vshards) if place else (0, 0, 0)
        lacking = place.lacking_vshards if place else 0
        rows.append(
            {
                "id": name,
                "member": name in membership.members,
                "address": f"{place.host}:{place.port}" if place else None,
                "wanted": wanted.bit_count(),
                "ready": (ready & ~lacking & wanted).bit_count(),
                "refilling": (held & ~ready & wanted).bit_count(),
                "lagging": (lagging & ~lacking).bit_count(),
                "lacking": lacking.bit_count(),
                "extra": (held & ~wanted).bit_count(),
            }
        )
    levels = [[level.step_s, level.count] for level in membership.levels]
    return {"replicas": membership.replicas, "levels": levels, "shards": rows}


@shards_app.command("limits")
def limits(zookeeper: ZookeeperOption = None, data: DataOption = None, as_json: JsonOption = False) -> None:
    """Show the limits of each shard, and the names with the most refused series; exit 1 if a shard does not
    answer."""
    from varstore.cluster.peers import PeerError, fetch_status

    found: list[dict[str, Any]] = []
    for place in _read(zookeeper, data).live:
        try:
            found.append(limits_row(fetch_status(place, REQUEST_TIMEOUT_S)))
        except PeerError as problem:
            found.append({"id": place.id, "problem": str(problem)})
    if as_json:
        print(json.dumps({"shards": found}, indent=1))
    else:
        print("\n".join(line for one in found for line in limits_lines(one)))
    if not found:
        print_error("artimon: no shard is live")
    raise typer.Exit(1 if not found or any("problem" in one for one in found) else 0)


def limits_row(status: dict[str, Any]) -> dict[str, Any]:
    """Return the figures about limits from a shard's status. `refused_names`: (name, refused series); `refused`
    counts samples since the start of the process."""
    wanted = ("slots", "capacity", "memory_limit", "memory_full", "refused", "refused_series", "refused_names")
    return {"id": status["shard"], **{name: status[name] for name in wanted}}


def limits_lines(one: dict[str, Any]) -> list[str]:
    """Format a line for the shard, and one for each name."""
    if "problem" in one:
        return [f"{one['id']:<8}  {one['problem']}"]
    full = " (reached)" if one["memory_full"] else ""
    head = [
        f"{one['id']:<8}",
        f"{one['slots']:,} of {one['capacity']:,} series",
        f"memory limit {one['memory_limit'] / 2**30:.1f} GiB{full}",
        f"refused: {one['refused_series']:,} announced series, {one['refused']:,} samples",
    ]
    return ["  ".join(head), *(f"{'':<8}  {count:>12,}  {printable(name)}" for name, count in one["refused_names"])]


@shards_app.command("add")
def add_shard(shard: IdArgument, zookeeper: ZookeeperOption = None, data: DataOption = None) -> None:
    """Add a shard to the members. Start it before, or soon after: it copies its data from the others."""
    _change(zookeeper, data, lambda membership: membership.with_member(shard))


@shards_app.command("remove")
def remove_shard(shard: IdArgument, zookeeper: ZookeeperOption = None, data: DataOption = None) -> None:
    """Remove a shard from the members; its data moves to others. Stop it once `artimon shards list` shows no data."""
    _change(zookeeper, data, lambda membership: membership.without_member(shard))


@shards_app.command("replicas")
def replicas(
    number: Annotated[int, typer.Argument(min=1, metavar="N", help="Number of shards that hold each series.")],
    zookeeper: ZookeeperOption = None,
    data: DataOption = None,
) -> None:
    """Set the number of shards that hold each series."""
    _change(zookeeper, data, lambda membership: membership.with_replicas(number))


def _read(zookeeper: str | None, data: Path | None) -> ClusterState:
    """Read the shards from ZooKeeper; exits with 1 and a message if it does not answer or there are none."""
    from varstore.cluster.cluster_directory import ClusterDirectory

    with _connected(zookeeper, data) as client:
        directory = ClusterDirectory(client)
        shards = directory.read()
        if directory.stale or not shards.members:
            print_error(f"artimon: {directory.stale or 'there are no shards yet: start one with `artimon shard`'}")
            raise typer.Exit(1)
    return shards


def _change(zookeeper: str | None, data: Path | None, how: Callable[[Membership], Membership]) -> None:
    from varstore.cluster.membership import MembershipError, update_membership

    with _connected(zookeeper, data) as client, exits(MembershipError):
        print_error(f"now {update_membership(client, how)}")


@contextmanager
def _connected(zookeeper: str | None, data: Path | None) -> Iterator[KazooClient]:
    from pipeline.control.control_tree import ControlPlaneError

    with exits(ControlPlaneError), connect_cluster(Cluster("", zookeeper or locate_settings(data).zookeeper)) as tree:
        yield tree.client
