"""Command `artimon rules replay`: reads rule files, replays them and prints the report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from alerts.dispatch.routes import Routing
from alerts.dispatch.routing_file import RoutingFile, check_routing
from alerts.evaluation.dispatch_state import routing_of
from alerts.evaluation.replay_report import comparison_json, comparison_table, replay_json, replay_table
from alerts.evaluation.rule_replay import Replay, ReplayError, held_end_ms, replay_rules
from alerts.rules.rule_folder import ActiveRules, read_files
from alerts.state.rule import AlertsError
from artimon.cli.common import print_error
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.select import SelectError
from artimon.progress_bar import ProgressBar
from artimon.runtime.config_file import ConfigFileError
from query_dsl import QueryError
from query_dsl.stores.history.engine import History
from query_dsl.stores.history_store import HistoryStore
from query_dsl.tree.times import format_time, parse_instant

DEFAULT_TARGET = "mail:default"
"""Target of rules that name no receiver; nothing is sent."""
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Files, range and places of a replay. `compare`: files of the other version; []: none."""

    files: Sequence[Path]
    compare: Sequence[Path]
    start: str
    end: str
    routing: Path | None
    hdfs: str
    zookeeper: str | None


def run_replay(options: ReplayOptions, *, as_json: bool = False) -> int:
    """Replay and print; return the exit code."""
    try:
        replays = _replays(options)
    except (QueryError, SelectError, ConfigFileError, AlertsError, ReplayError) as problem:
        print_error(f"artimon: {problem}")
        return 1
    except OSError as problem:
        print_error(f"artimon: {problem.filename}: {problem.strerror}")
        return 1
    except KeyboardInterrupt:
        print_error("artimon: interrupted; nothing is printed")
        return 130
    if as_json:
        print(json.dumps(comparison_json(*replays) if len(replays) > 1 else replay_json(replays[0]), indent=1))
    else:
        print("\n".join(comparison_table(*replays) if len(replays) > 1 else replay_table(replays[0])))
    errors = [line for replay in replays for rule in replay.rules for line in rule.error_lines()]
    for line in errors:
        print_error(line)
    return 1 if errors else 0


def _replays(options: ReplayOptions) -> list[Replay]:
    """Return the replay of the files, and that of the other version, if there is one."""
    versions = [read_files(paths, (DEFAULT_TARGET,)) for paths in (options.files, options.compare) if paths]
    now_ms = SYSTEM_CLOCK.now_ms()
    start_ms = parse_instant(options.start, "--from").resolve(now_ms)
    end_ms = parse_instant(options.end, "--to").resolve(now_ms)
    routings = [_routing(version, options.routing) for version in versions]
    _note_records(versions)
    with History(options.hdfs, options.zookeeper) as history:
        store = HistoryStore(history)
        asked_ms, end_ms = end_ms, held_end_ms(store, end_ms)
        if end_ms < asked_ms:
            print_error(f"artimon: the history does not hold later minutes: the replay ends at {format_time(end_ms)}")
        if end_ms - start_ms < MINUTE_MS:
            raise ReplayError(f"nothing to replay from {format_time(start_ms)} to {format_time(end_ms)}")
        with ProgressBar() as bar:
            return [
                replay_rules(version.rules, store, start_ms, end_ms, routing, bar)
                for version, routing in zip(versions, routings, strict=True)
            ]


def _routing(rules: ActiveRules, path: Path | None) -> Routing:
    """Return the routing of the engine with these rules. Raises AlertsError."""
    routing = routing_of(rules)
    if path is None:
        return routing
    for line in check_routing(path):
        print_error(f"artimon: {line}")
    return RoutingFile(path).apply(routing)


def _note_records(versions: Iterable[ActiveRules]) -> None:
    count = max(len(version.records) for version in versions)
    if count:
        print_error(
            f"artimon: {count} recording rules are not evaluated: the replay reads the series that the engine recorded"
        )
