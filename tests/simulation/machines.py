"""State machines that the simulation drives: their place in the program, and the functions that it leaves out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

MACHINES: dict[str, tuple[str, ...]] = {
    "artimon/model/ranges.py": ("RangeSet", "LaneRanges"),
    "artimon/rawtable/commit.py": ("RawTable.append", "RawTable._check_chain"),
    "artimon/rawtable/state.py": (
        *("advance", "_remember", "_merge", "end_of_epoch", "followed", "_reach", "find_gaps", "begins_topic"),
        *("close_gaps", "_close", "_add_span", "_distribute"),
    ),
    "artimon/model/acks.py": ("judge", "_against", "_without", "_beside", "_version", "_fresh", "PartitionState"),
    "pipeline/collector/collector.py": ("Collector",),
    "pipeline/link/endpoints.py": ("Collectors",),
    "pipeline/control/acks_watch.py": ("Control",),
    "pipeline/link/credits.py": ("Credits", "Shares"),
    "pipeline/link/link.py": ("Link",),
    "pipeline/wal/core.py": ("LogCore", "_refuse_all"),
    "pipeline/wal/framing.py": ("read_record", "scan", "_next_record", "_is_padding"),
    "pipeline/wal/recovery.py": ("Recovery", "look_at", "newest", "gaps_in", "_look_at", "_take", "_end_of"),
    "pipeline/wal/repair.py": ("repair", "_repair_segment", "_keep_copy", "keep_bytes"),
    "pipeline/wal/segments.py": ("Segments",),
    "pipeline/delivery/numbering.py": ("Numbering",),
    "pipeline/delivery/pace.py": ("Pacing",),
    "pipeline/delivery/probe.py": ("Probing",),
    "pipeline/collector/quota.py": ("Quota",),
    "pipeline/delivery/dispatch.py": ("Sending", "notes_of_sent", "notes_of_done", "restore"),
    "pipeline/link/timer.py": ("AdaptiveTimer", "backoff"),
    "pipeline/delivery/tracker.py": ("Tracker",),
    "pipeline/delivery/shedder.py": ("Shedder", "LogAppender"),
    "pipeline/sites/binding.py": ("SiteBinding",),
    "pipeline/sites/placing.py": ("Placing",),
    "pipeline/sites/record.py": ("LaneRecord", "Record", "load", "save"),
    "pipeline/spark/acks.py": ("AcksPublisher", "document"),
    "pipeline/spark/buckets.py": ("BucketsQuery", "Life"),
    "pipeline/spark/cuts.py": ("Cuts",),
    "pipeline/spark/feeding.py": ("_Feeder", "feed_records"),
    "pipeline/spark/progress.py": ("Progress", "_Process"),
    "pipeline/spark/raw.py": ("RawQuery", "Life"),
    "pipeline/spark/retention.py": ("Retention", "cut_for_room"),
    "pipeline/spark/tasks.py": ("Reader",),
    "pipeline/spark/topic.py": ("Topic._epochs", "Topic.epochs", "Topic.check_leaders"),
    "varstore/store/groups.py": ("Groups", "Group"),
    "varstore/snapshot/recovery.py": ("is_from_table", "has_lost", "can_go_on", "LogSpan"),
    "varstore/snapshot/raw_state.py": ("RawHead",),
    "varstore/store/positions.py": ("admit", "advance", "sift", "check_range", "check_owned"),
}
OPERATORS = ("release", "outstanding", "bound")
"""For lanes that an operator gives up, and for displays: tests/pipeline/sites."""
LEFT_OUT = {
    *(f"Tracker.{name}" for name in OPERATORS),
    *(f"Placing.{name}" for name in ("release", "bound", "_hand_on")),
    "SiteBinding.forget",
    *(f"Tracker.{name}" for name in ("oldest_ms", "oldest_unsent_ms", "_unsent", "lanes", "set_ack_on_sent")),
    *("AcksPublisher.run", "Retention.run", "RawQuery.run", "RawQuery._live", "RawQuery.figures"),  # loops around turns
    *("BucketsQuery.run", "Life.run_tasks", "Life.on_batch.task", "Life._tasks"),  # Spark itself
    *("Life.catch_up", "Life._help"),  # the loop around help_laggards
    *("RawQuery.problems", "RawQuery._lag_ms", "Retention.look", "Quota.figures", "Quota.problem", "Progress.figures"),
    *("Progress._lag_ms", "Progress.log_end", "Collector.figures", "Collectors.update", "Collector.send"),
    *("Group.forget_lanes", "Group.forget_lost"),  # 97 days, and 82 hours: tests/varstore
    *("Credits.keep", "Link.fit", "LogCore.close", "Segments.close", "Life._rest"),
    *(
        "RawQuery._begin_next",
        "BucketsQuery._live",
        "BucketsQuery._drain",
        "BucketsQuery._drain_older",
        "AcksPublisher._bounds_of",
    ),
    *("Life.drain", "Life.settled", "Life.close", "Progress.stand_at", "Progress.is_sure", "Retention._trim_closed"),
    # several generations of a topic: tests/kafka
}


class Covered(NamedTuple):
    """Branches of one function or class."""

    name: str
    taken: int
    all: int


def covered(report: Path) -> list[Covered]:
    """Return the branch coverage of the machines, function by function, from a JSON report of coverage.py."""
    found = []
    for path, file in json.loads(report.read_text())["files"].items():
        wanted = next((names for name, names in MACHINES.items() if path.endswith(name)), ())
        for name, entry in file["functions"].items():
            summary: dict[str, Any] = entry["summary"]
            machine = any(name == one or name.startswith(f"{one}.") for one in wanted)
            if machine and name not in LEFT_OUT and summary["num_branches"]:
                found.append(Covered(f"{path}:{name}", summary["covered_branches"], summary["num_branches"]))
    return found
