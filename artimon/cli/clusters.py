"""Access to the control planes of several clusters: one ZooKeeper each, without a common master."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer
from typer.core import TyperGroup

from artimon.cli.common import locate_settings, print_error

if TYPE_CHECKING:
    from pipeline.control.control_tree import ControlTree

Result = TypeVar("Result")
CONNECT_S = 10.0

ZookeepersOption = Annotated[
    list[str] | None,
    typer.Option("--zookeeper", help="host:port or NAME=host:port; may be repeated (ARTIMON_ZOOKEEPER)."),
]
ClustersOption = Annotated[
    Path | None, typer.Option("--clusters", help='TOML file with a table \\[clusters] of NAME = "host:port".')
]


class Cluster(NamedTuple):
    """Name of a cluster and the ZooKeeper of its control plane."""

    name: str
    zookeeper: str


class DefaultListGroup(TyperGroup):
    """Group of commands with a default command, which is added to arguments that begin with no command."""

    default_command = "list"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("--help", "--show-completion")):
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)


def choose_clusters(zookeepers: Sequence[str] | None, file: Path | None) -> list[Cluster]:
    """Return the clusters named by options and by the file; else that of the settings or the running stack."""
    found = [*_parse_clusters(zookeepers or ()), *(_read_clusters(file) if file is not None else ())]
    if not found:
        return [Cluster("", locate_settings().zookeeper)]
    names = [one.name for one in found]
    if len(set(names)) != len(names):
        raise typer.BadParameter(f"cluster names are not unique: {', '.join(names)}; write NAME=host:port")
    return found


def _parse_clusters(texts: Sequence[str]) -> Iterator[Cluster]:
    for text in texts:
        name, equals, place = text.partition("=")
        if equals and name and place:
            yield Cluster(name, place)
        else:
            yield Cluster(text if len(texts) > 1 else "", text)


def _read_clusters(file: Path) -> list[Cluster]:
    try:
        table = tomllib.loads(file.read_text())["clusters"]
        if not isinstance(table, dict) or not all(isinstance(place, str) for place in table.values()):
            raise TypeError("[clusters] must map names to strings")
        return [Cluster(str(name), place) for name, place in table.items()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise typer.BadParameter(f'{file}: write [clusters] and lines NAME = "host:port" ({error!r})') from None


@contextmanager
def connect_cluster(cluster: Cluster) -> Iterator[ControlTree]:
    """Connect to the control plane of one cluster. Raises ControlPlaneError whenever its ZooKeeper does not answer."""
    from kazoo.handlers.threading import KazooTimeoutError

    from artimon.runtime.zookeeper_client import zookeeper_session
    from artimon.runtime.zookeeper_watcher import ZOOKEEPER_ERRORS
    from pipeline.control.control_tree import ControlPlaneError, ControlTree

    try:
        with zookeeper_session(cluster.zookeeper, CONNECT_S) as client:
            yield ControlTree(client)
    except KazooTimeoutError:
        raise ControlPlaneError(f"ZooKeeper at {cluster.zookeeper} does not answer") from None
    except ZOOKEEPER_ERRORS as error:
        raise ControlPlaneError(f"ZooKeeper at {cluster.zookeeper}: {type(error).__name__} {error}") from None


def run_in_each(
    clusters: Sequence[Cluster], act: Callable[[Cluster, ControlTree], Result]
) -> tuple[dict[str, Result], bool]:
    """Run `act` in each cluster. Returns the results by cluster name, and True if all succeeded; a failure in one
    cluster is printed and does not stop the others."""
    from pipeline.control.config_document import ConfigError
    from pipeline.control.control_tree import ControlPlaneError

    results, good = {}, True
    for cluster in clusters:
        try:
            with connect_cluster(cluster) as tree:
                results[cluster.name] = act(cluster, tree)
        except (ControlPlaneError, ConfigError) as problem:
            where = f"{cluster.name}: " if cluster.name else ""
            print_error(f"artimon: {where}{problem}")
            good = False
    return results, good
