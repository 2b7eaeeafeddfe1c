"""State machines that the simulation drives: their place in the program, and the functions that it leaves out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

MACHINES: dict[str, tuple[str, ...]] = {
    "artimon/model/ranges.py": ("RangeSet", "LaneRanges"),
    "artimon/rawtable/commit.py": ("RawTable.append", "RawTable._check_chain"),
    "artimon/rawtable/table_state.py": (
        *(
            "advance",
            "_keep_recent",
            "_merge",
            "end_of_epoch",
            "append_epoch",
            "_common_end",
            "find_gaps",
            "begins_topic",
        ),
        *("close_gaps", "_close", "_add_span", "_redistribute"),
    ),
    "artimon/model/ack_state.py": (
        "decide_acks",
        "_decide_with_state",
        "_decide_without_state",
        "_states_of_topic",
        "_newest_version",
        "_is_confirmed",
        "PartitionState",
    ),
    "pipeline/collector/collector.py": ("Collector",),
    "pipeline/link/collector_choice.py": ("Collectors",),
    "pipeline/control/ack_watcher.py": ("AckWatcher",),
    "pipeline/link/credits.py": ("AgentCredits", "CollectorCredits"),
    "pipeline/link/collector_link.py": ("CollectorLink",),
    "pipeline/wal/log_core.py": ("LogCore", "_refuse_all"),
    "pipeline/wal/segment_format.py": ("read_record", "scan_segment", "_next_record", "_is_padding"),
    "pipeline/wal/recovery.py": (
        "Recovery",
        "recover_segments",
        "count_of_newest",
        "missing_segments",
        "_recover_segment",
        "_apply_record",
        "_end_of",
    ),
    "pipeline/wal/repair.py": ("repair_segments", "_repair_segment", "_quarantine_range", "quarantine_bytes"),
    "pipeline/wal/segments.py": ("Segments",),
    "pipeline/delivery/batch_numbers.py": ("BatchNumberer",),
    "pipeline/delivery/backlog_limiter.py": ("BacklogLimiter",),
    "pipeline/delivery/slow_start.py": ("SlowStart",),
    "pipeline/collector/kafka_quota.py": ("KafkaQuotaGate",),
    "pipeline/delivery/send_planner.py": ("SendPlanner", "notes_of_sent", "notes_of_released", "restore_tracker"),
    "pipeline/link/timer.py": ("AdaptiveTimer", "backoff_s"),
    "pipeline/delivery/tracker.py": ("Tracker",),
    "pipeline/delivery/shedder.py": ("Shedder", "QuotaBypass"),
    "pipeline/sites/site_binding.py": ("SiteAssignment",),
    "pipeline/sites/site_router.py": ("SiteRouter",),
    "pipeline/sites/site_record.py": ("LaneRecord", "SiteRecord", "load_record", "save_record"),
    "pipeline/spark/acks_publisher.py": ("AcksPublisher", "acks_document"),
    "pipeline/spark/buckets_query.py": ("BucketsQuery", "BucketsRun"),
    "pipeline/spark/log_truncation.py": ("TruncationDetector",),
    "pipeline/spark/feed_task.py": ("_RangeFeeder", "feed_records"),
    "pipeline/spark/feed_progress.py": ("FeedProgress", "_ShardState"),
    "pipeline/spark/raw_query.py": ("RawQuery", "RawRun"),
    "pipeline/spark/retention.py": ("TopicTrimmer", "starts_to_free"),
    "pipeline/spark/raw_task.py": ("PartitionReader",),
    "pipeline/spark/topic_client.py": ("TopicClient._epochs", "TopicClient.epochs", "TopicClient.check_leaders"),
    "varstore/store/feed_groups.py": ("FeedGroups", "FeedGroup"),
    "varstore/snapshot/restore.py": ("prefers_table", "table_has", "can_continue", "LogSpan"),
    "varstore/snapshot/raw_head.py": ("RawHead",),
    "varstore/store/range_admission.py": ("admit", "advance", "drop_repeats", "check_range", "check_owned"),
}
OPERATORS = ("release", "outstanding", "bound")
"""For lanes that an operator gives up, and for displays: tests/pipeline/sites."""
LEFT_OUT = {
    *(f"Tracker.{name}" for name in OPERATORS),
    *(f"SiteRouter.{name}" for name in ("release", "bound", "_hand_on")),
    "SiteAssignment.forget",
    *(f"Tracker.{name}" for name in ("oldest_ms", "oldest_unsent_ms", "_unsent", "lanes", "set_ack_on_sent")),
    *(
        "AcksPublisher.run",
        "TopicTrimmer.run",
        "RawQuery.run",
        "RawQuery._live",
        "RawQuery.figures",
    ),  # loops around turns
    *("BucketsQuery.run", "RawRun.run_tasks", "Life.on_batch.task", "RawRun._tasks"),  # Spark itself
    *("BucketsRun.catch_up", "BucketsRun._help"),  # the loop around help_laggards
    *(
        "RawQuery.problems",
        "RawQuery._lag_ms",
        "TopicTrimmer.look",
        "KafkaQuotaGate.figures",
        "KafkaQuotaGate.problem",
        "FeedProgress.figures",
    ),
    *("FeedProgress._lag_ms", "FeedProgress.log_end", "Collector.figures", "Collectors.update", "Collector.count_call"),
    *("FeedGroup.forget_lanes", "FeedGroup.forget_lost"),  # 97 days, and 82 hours: tests/varstore
    *("AgentCredits.keep", "CollectorLink.fit", "LogCore.close", "Segments.close", "RawRun._rest"),
    *(
        "RawQuery._begin_next",
        "BucketsQuery._live",
        "BucketsQuery._drain",
        "BucketsQuery._drain_older",
        "AcksPublisher._bounds_of",
    ),
    *(
        "BucketsRun.drain",
        "BucketsRun.settled",
        "BucketsRun.close",
        "FeedProgress.stand_at",
        "FeedProgress.is_sure",
        "TopicTrimmer._trim_closed",
    ),
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
