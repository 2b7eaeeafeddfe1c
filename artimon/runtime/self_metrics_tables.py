"""Tables of figures and their own variables, by process. docs/variables.md lists them; a test compares the two."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from artimon.runtime.self_metrics import FigureConversion, SelfMetric

AGENT = (
    SelfMetric("artimon.agent.batches.accepted", "accepted_batches", "Batches fsynced in the log", counter=True),
    SelfMetric("artimon.agent.samples.accepted", "accepted_samples", "Samples fsynced in the log", counter=True),
    SelfMetric("artimon.agent.bytes.accepted", "accepted_bytes", "Bytes fsynced in the log", "bytes", counter=True),
    SelfMetric("artimon.agent.batches.pending", "pending_batches", "Batches and announcements not acked"),
    SelfMetric("artimon.agent.batches.unsent", "unsent_batches", "Batches and announcements that Kafka does not have"),
    SelfMetric("artimon.agent.batches.sent", "sent_batches", "Batches and announcements that Kafka took", counter=True),
    SelfMetric("artimon.agent.batches.acked", "acked_batches", "Batches acked and forgotten", counter=True),
    SelfMetric(
        "artimon.agent.batches.resent", "resent_batches", "Batches sent again on evidence of loss", counter=True
    ),
    SelfMetric("artimon.agent.batches.damaged", "damaged_batches", "Batches unreadable on the disk", counter=True),
    SelfMetric("artimon.agent.unacked.ms", "oldest_unacked_ms", "Age of the oldest batch not acked", "ms"),
    SelfMetric("artimon.agent.unsent.ms", "oldest_unsent_ms", "Age of the oldest batch that Kafka does not have", "ms"),
    SelfMetric("artimon.agent.nacks", "nacks", "Batches that a collector refused", counter=True, labels=("reason",)),
    SelfMetric("artimon.agent.calls", "calls", "Calls to collectors", counter=True),
    SelfMetric(
        "artimon.agent.calls.unanswered", "calls_unanswered", "Calls without answer", counter=True, labels=("reason",)
    ),
    SelfMetric("artimon.agent.flying.bytes", "flying_bytes", "Bytes in flight to collectors", "bytes"),
    SelfMetric(
        "artimon.agent.bytes.carried", "carried_bytes", "Bytes of all calls with repeats", "bytes", counter=True
    ),
    SelfMetric("artimon.agent.acks", "ack_waits", "Batches with a measured ack latency", counter=True),
    SelfMetric("artimon.agent.acks.ms", "ack_waits_ms", "Sum of ack latencies, from log to ack", "ms", counter=True),
    SelfMetric(
        "artimon.agent.ack.p50.ms", "ack_wait_p50_ms", "Median ack latency since the start of the process", "ms"
    ),
    SelfMetric("artimon.agent.ack.p99.ms", "ack_wait_p99_ms", "99th percentile of the ack latency", "ms"),
    SelfMetric(
        "artimon.agent.source.lag.ms", "source_lag_ms", "From a poll to its ack, by source", "ms", labels=("source",)
    ),
    SelfMetric(
        "artimon.agent.backlog.held", "backlog_held", "1 while the backlog is throttled for a late table, else 0"
    ),
    SelfMetric("artimon.agent.refused", "log_refused", "Polls that the log refused", counter=True, labels=("reason",)),
    SelfMetric("artimon.agent.log.bytes", "log_bytes", "Size of the log on disk", "bytes"),
    SelfMetric("artimon.agent.log.quota.bytes", "log_quota_bytes", "Quota of the log on disk", "bytes"),
    SelfMetric("artimon.agent.aside.batches", "aside.errors", "Quarantined batches, refused by collectors"),
    SelfMetric("artimon.agent.aside.pieces", "aside.damaged", "Quarantined damaged pieces of the log"),
    SelfMetric("artimon.agent.collectors", "collectors", "Collectors known"),
    SelfMetric("artimon.agent.collectors.up", "collectors_up", "Known collectors not avoided after a failure"),
    SelfMetric("artimon.agent.collectors.slow", "collectors_slow", "Detections of a slow collector", counter=True),
    SelfMetric("artimon.agent.endpoints.up", "endpoints_up", "Processes that answered their last poll"),
    SelfMetric(
        "artimon.agent.endpoints.down", "endpoints_down", "Processes with a failed poll, up to 1 h after they vanish"
    ),
    SelfMetric("artimon.agent.polls", "polls", "Polls of processes", counter=True),
    SelfMetric("artimon.agent.poll.errors", "poll_errors", "Polls that failed", counter=True, labels=("reason",)),
    SelfMetric("artimon.agent.samples.polled", "polled_samples", "Samples that sources yielded", counter=True),
    SelfMetric(
        "artimon.agent.ticks.missed", "missed_ticks", "Polls skipped because the one before was late", counter=True
    ),
    SelfMetric(
        "artimon.agent.sink.refused", "sink_refused", "Polls dropped because the log was full or closed", counter=True
    ),
    SelfMetric(
        "artimon.agent.sources.refused", "source_refused", "Refused at each source's last poll", labels=("reason",)
    ),
    SelfMetric("artimon.agent.flow.events", "flow_events", "Events accepted by a flow", counter=True, labels=("flow",)),
    SelfMetric("artimon.agent.flow.refused", "flow_refused", "Calls refused", counter=True, labels=("flow", "reason")),
    SelfMetric(
        "artimon.agent.flow.delivered", "flow_delivered", "Event batches delivered", counter=True, labels=("flow",)
    ),
    SelfMetric("artimon.agent.flow.rejected", "flow_rejected", "Event batches quarantined", labels=("flow",)),
    SelfMetric("artimon.agent.flow.waiting", "flow_waiting", "Event batches in the channel", labels=("flow",)),
    SelfMetric(
        "artimon.agent.flow.oldest.ms", "flow_oldest_ms", "Age of the oldest event batch in it", "ms", labels=("flow",)
    ),
    SelfMetric("artimon.agent.flow.deaths", "flow_deaths", "Threads that died", counter=True, labels=("flow",)),
    SelfMetric("artimon.agent.flow.alarms", "flow_alarms", "Work without progress", counter=True, labels=("flow",)),
    SelfMetric("artimon.agent.zookeeper.failures", "zookeeper_failures", "Failed calls of the discovery", counter=True),
    SelfMetric("artimon.agent.batches.direct", "direct_batches", "Batches sent without the log", counter=True),
    SelfMetric("artimon.agent.batches.lost", "lost_batches", "Accepted and given up", counter=True, labels=("reason",)),
    SelfMetric("artimon.agent.batches.moved", "moved_batches", "Never sent, moved to another site", counter=True),
    SelfMetric(
        "artimon.agent.batches.released", "released_batches", "Released from a site by an operator", counter=True
    ),
    SelfMetric("artimon.agent.problems", "problems", "Current problems", conversion=FigureConversion.COUNT),
)

COLLECTOR = (
    SelfMetric("artimon.collector.batches", "batches", "Batches and announcements written to Kafka", counter=True),
    SelfMetric("artimon.collector.bytes", "bytes", "Bytes written to Kafka", "bytes", counter=True),
    SelfMetric("artimon.collector.held.bytes", "held_bytes", "Bytes of calls that wait for Kafka", "bytes"),
    SelfMetric("artimon.collector.agents", "agents", "Agents that share its credit"),
    SelfMetric("artimon.collector.calls", "calls", "Calls answered", counter=True),
    SelfMetric("artimon.collector.calls.ms", "calls_ms", "Time of answered calls", "ms", counter=True),
    SelfMetric("artimon.collector.call.longest.ms", "longest_call_ms", "Longest call since the process began", "ms"),
    SelfMetric(
        "artimon.collector.wait.ms",
        "longest_wait_ms",
        "Longest wait of a call for the store, last one to two min",
        "ms",
    ),
    SelfMetric("artimon.collector.nacks", "nacks", "Batches refused", counter=True, labels=("reason",)),
    SelfMetric("artimon.collector.files", "direct.rolls", "Files of batches that were closed", counter=True),
    SelfMetric(
        "artimon.collector.files.failed", "direct.failed_rolls", "Files that failed, acking nothing", counter=True
    ),
    SelfMetric(
        "artimon.collector.files.bytes", "direct.waiting_bytes", "Bytes that wait in memory for a file", "bytes"
    ),
    SelfMetric("artimon.collector.files.open.ms", "direct.oldest_open_ms", "Age of the oldest open file", "ms"),
    SelfMetric(
        "artimon.collector.files.overdue.ms", "direct.overdue_ms", "Delay of the oldest file after its roll", "ms"
    ),
    SelfMetric(
        "artimon.kafka.bytes", "kafka.bytes", "Bytes of the topic of samples, as each collector counts them", "bytes"
    ),
    SelfMetric("artimon.kafka.quota.bytes", "kafka.quota_bytes", "Quota of the topic of samples, 0 for none", "bytes"),
    SelfMetric("artimon.kafka.full", "kafka.full", "1 while collectors refuse samples over the quota, else 0"),
    SelfMetric(
        "artimon.collector.answer.age.ms",
        "last_answer_ms",
        "Age of the last answered call",
        "ms",
        conversion=FigureConversion.AGE,
    ),
)

SPARK = (
    SelfMetric("artimon.spark.lag.ms", "raw.lag_ms", "Wait of the oldest batch for the raw table", "ms"),
    SelfMetric("artimon.spark.behind", "raw.behind", "Batches of Kafka that the raw table does not hold"),
    SelfMetric("artimon.spark.rows", "raw.since_start.rows", "Rows appended to the raw table", counter=True),
    SelfMetric("artimon.spark.batches", "raw.since_start.batches", "Batches appended to the raw table", counter=True),
    SelfMetric("artimon.spark.duplicates", "raw.since_start.duplicates", "Batches dropped as repeats", counter=True),
    SelfMetric(
        "artimon.spark.deadletters", "raw.since_start.dead_letters", "Batches unreadable, dead-lettered", counter=True
    ),
    SelfMetric(
        "artimon.raw.gaps", "raw.since_start.gaps", "Ranges reported lost or cut", counter=True, labels=("kind",)
    ),
    SelfMetric("artimon.spark.commits", "raw.since_start.appends", "Appends to the raw table", counter=True),
    SelfMetric(
        "artimon.spark.commits.ms", "raw.since_start.appends_ms", "Time of appends with tasks", "ms", counter=True
    ),
    SelfMetric("artimon.spark.commit.ms", "raw.append_ms", "Time of the last append", "ms"),
    SelfMetric(
        "artimon.spark.commit.age.ms",
        "raw.last_commit_ms",
        "Time since the last append",
        "ms",
        conversion=FigureConversion.AGE,
    ),
    SelfMetric("artimon.spark.table.version", "raw.version", "Version of the raw table"),
    SelfMetric("artimon.spark.table.rows", "raw.rows", "Rows in the raw table since its creation"),
    SelfMetric("artimon.spark.buckets.lag.ms", "buckets.lag_ms", "Wait of the oldest batch for the shards", "ms"),
    SelfMetric("artimon.spark.buckets.behind", "buckets.behind", "Batches of Kafka not yet fed"),
    SelfMetric("artimon.spark.buckets.ranges", "buckets.ranges", "Ranges of partitions fed", counter=True),
    SelfMetric("artimon.spark.buckets.refused", "buckets.refused", "Messages skipped as dead letters", counter=True),
    SelfMetric("artimon.spark.buckets.runs", "buckets.runs", "Micro-batches of the buckets query", counter=True),
    SelfMetric("artimon.spark.buckets.runs.ms", "buckets.runs_ms", "Time of micro-batches", "ms", counter=True),
    SelfMetric("artimon.spark.buckets.run.ms", "buckets.run_ms", "Time of the last micro-batch", "ms"),
    SelfMetric(
        "artimon.spark.shards", "buckets.shards", "Shards known to the buckets query", conversion=FigureConversion.COUNT
    ),
    SelfMetric(
        "artimon.spark.shards.behind",
        "buckets.lagging",
        "Known shards that lag behind",
        conversion=FigureConversion.COUNT,
    ),
    SelfMetric(
        "artimon.spark.restarts", "restarts", "Restarts of a query in the process", counter=True, labels=("query",)
    ),
)

COMPACTOR = (
    SelfMetric("artimon.compactor.jobs", "jobs", "Hours and days compacted", counter=True),
    SelfMetric("artimon.compactor.rows", "rows", "Rows compacted", counter=True),
    SelfMetric("artimon.compactor.bytes.before", "bytes_before", "Size of the files replaced", "bytes", counter=True),
    SelfMetric("artimon.compactor.bytes.after", "bytes_after", "Size of the replacement files", "bytes", counter=True),
    SelfMetric("artimon.compactor.waiting", "waiting", "Jobs that are due"),
    SelfMetric("artimon.compactor.behind.ms", "behind_ms", "Delay of the oldest due job behind the appends", "ms"),
    SelfMetric("artimon.compactor.alarms", "alarms", "Jobs abandoned because the proof failed", counter=True),
    SelfMetric("artimon.compactor.givenup", "given_up", "Abandoned jobs not retried until something changes"),
    SelfMetric("artimon.compactor.expired", "expired_files", "Files expired", counter=True),
    SelfMetric("artimon.compactor.deleted", "deleted.files", "Dead files deleted", counter=True),
    SelfMetric("artimon.compactor.orphans", "orphans", "Deleted files that no commit ever named", counter=True),
    SelfMetric("artimon.compactor.dead", "dead.files", "Dead files that a reader may still need"),
    SelfMetric("artimon.compactor.dead.bytes", "dead.bytes", "Size of the dead files", "bytes"),
    SelfMetric("artimon.compactor.live", "live.files", "Files of the raw table"),
    SelfMetric("artimon.compactor.live.bytes", "live.bytes", "Size of the live files", "bytes"),
    SelfMetric("artimon.compactor.live.openhour", "live.open_hour", "Most files in an hour that is open"),
    SelfMetric("artimon.compactor.live.closedhour", "live.closed_hour", "Most files in an hour that is closed"),
    SelfMetric("artimon.compactor.live.day", "live.day", "Most files in a day"),
    SelfMetric("artimon.compactor.live.openhours", "live.open_hours", "Hours that are open"),
    SelfMetric("artimon.compactor.rollups.samples", "rollups.samples", "Samples rolled up", counter=True),
    SelfMetric("artimon.compactor.rollups.waiting", "rollups.waiting", "Jobs of roll-ups that are due"),
    SelfMetric("artimon.compactor.rollups.heldback", "rollups.held_back", "Expired files that wait for their roll-ups"),
    SelfMetric("artimon.compactor.rollups.live", "rollups.live_files", "Files of the table of roll-ups"),
    SelfMetric("artimon.compactor.rollups.live.bytes", "rollups.live_bytes", "Size of the files of roll-ups", "bytes"),
    SelfMetric(
        "artimon.compactor.settled.age.ms",
        "settled_ms",
        "Age of the newest complete append",
        "ms",
        conversion=FigureConversion.AGE,
    ),
)

SHARD = (
    SelfMetric("artimon.shard.series", "series", "Series announced"),
    SelfMetric("artimon.shard.slots", "slots", "Series with samples"),
    SelfMetric("artimon.shard.capacity", "capacity", "Maximum number of series"),
    SelfMetric("artimon.shard.unannounced", "unannounced", "Series with samples and without announcement"),
    SelfMetric("artimon.shard.samples.applied", "applied", "Samples put into buckets", counter=True),
    SelfMetric("artimon.shard.batches.repeated", "repeated", "Batches dropped as repeats", counter=True),
    SelfMetric("artimon.shard.samples.late", "late", "Samples too old for every level", counter=True),
    SelfMetric("artimon.shard.samples.future", "future", "Samples beyond the newest row", counter=True),
    SelfMetric("artimon.shard.samples.conflicts", "conflicts", "Samples whose type the series refuses", counter=True),
    SelfMetric("artimon.shard.samples.refused", "refused", "Samples of series beyond the capacity", counter=True),
    SelfMetric("artimon.shard.clashes", "clashes", "Fingerprints announced with two texts"),
    SelfMetric("artimon.shard.refilling", "refilling", "Batches to go until answers are complete"),
    SelfMetric("artimon.shard.vshards.wanted", "vshards_wanted", "Virtual shards assigned to it"),
    SelfMetric("artimon.shard.vshards.ready", "vshards_ready", "Virtual shards that it holds completely"),
    SelfMetric(
        "artimon.shard.vshards.lacking", "vshards_lacking", "Virtual shards that lack what Kafka deleted unread"
    ),
    SelfMetric("artimon.shard.offsets.lacking", "offsets_lacking", "Offsets that Kafka deleted before they were read"),
    SelfMetric("artimon.shard.refills", "refills", "Refills of lacking data from the raw table", counter=True),
    SelfMetric("artimon.shard.lag.ms", "lag_ms", "Age in Kafka of the oldest missing message", "ms"),
    SelfMetric(
        "artimon.shard.newest.age.ms",
        "newest_sample_ms",
        "Age of the newest poll it holds",
        "ms",
        conversion=FigureConversion.AGE,
    ),
    SelfMetric("artimon.shard.queries", "questions.selects", "Requests for buckets answered", counter=True),
    SelfMetric(
        "artimon.shard.queries.ms", "questions.selects_ms", "Time of requests, also refused ones", "ms", counter=True
    ),
    SelfMetric("artimon.shard.queries.refused", "questions.refused", "Requests for buckets refused", counter=True),
)

API = (
    SelfMetric("artimon.api.requests", "requests", "Requests answered", counter=True, labels=("route", "status")),
    SelfMetric("artimon.api.requests.ms", "requests_ms", "Time of requests", "ms", counter=True, labels=("route",)),
    SelfMetric("artimon.api.errors", "errors", "Requests refused or failed", counter=True, labels=("status",)),
    SelfMetric("artimon.api.running", "running", "Requests in progress"),
    SelfMetric("artimon.api.logins.refused", "logins_refused", "Logins refused after too many failures", counter=True),
    SelfMetric("artimon.api.audit.failed", "audit_failed", "Lines of the audit log not written", counter=True),
)

ALERTS = (
    SelfMetric("artimon.alerts.rules", "rules", "Rules by state", labels=("state",)),
    SelfMetric("artimon.alerts.alerts", "alerts", "Alerts by state", labels=("state",)),
    SelfMetric("artimon.alerts.evaluations", "evaluations", "Evaluations of all rules", counter=True),
    SelfMetric("artimon.alerts.evaluation.ms", "duration_ms", "Duration of the last evaluation", "ms"),
    SelfMetric(
        "artimon.alerts.evaluation.age.ms",
        "last_ms",
        "Age of the last evaluated bucket",
        "ms",
        conversion=FigureConversion.AGE,
    ),
    SelfMetric(
        "artimon.alerts.evaluation.delay.ms", "delay_ms", "Time from the end of the minute to its evaluation", "ms"
    ),
    SelfMetric("artimon.alerts.questions", "questions", "Selects of the last evaluation"),
    SelfMetric("artimon.alerts.minutes.missed", "missed", "Minutes without evaluation since the state began"),
    SelfMetric("artimon.alerts.mails.made", "mail.made", "Mails put into the outbox", counter=True),
    SelfMetric("artimon.alerts.mails.sent", "mail.sent", "Mails accepted by the SMTP server", counter=True),
    SelfMetric(
        "artimon.alerts.mails.failed", "mail.failed", "Mails permanently refused by the SMTP server", counter=True
    ),
    SelfMetric("artimon.alerts.mails.dropped", "mail.dropped", "Mails dropped because too many waited", counter=True),
    SelfMetric("artimon.alerts.mails.pending", "mail.pending", "Mails in the outbox"),
    SelfMetric("artimon.alerts.leads", "pair.leads", "1 if this engine leads its pair"),
    SelfMetric("artimon.alerts.takeovers", "pair.takeovers", "Take-overs of the pair by this engine", counter=True),
    SelfMetric("artimon.alerts.problems", "problems", "Current problems", conversion=FigureConversion.COUNT),
)

MAIL = (
    SelfMetric("artimon.mail.accepted", "accepted", "Mails taken and written to disk", counter=True),
    SelfMetric("artimon.mail.refused", "refused", "Mails that could not be written", counter=True),
    SelfMetric("artimon.mail.connections", "connections", "Open connections"),
    SelfMetric("artimon.mail.connections.refused", "turned_away", "Connections beyond the limit", counter=True),
    SelfMetric("artimon.mail.kept", "kept", "Mails kept"),
    SelfMetric("artimon.mail.kept.bytes", "bytes", "Size of the mails kept", "bytes"),
    SelfMetric("artimon.mail.removed", "removed", "Mails removed to make room", counter=True),
)

STACK = (
    SelfMetric("artimon.stack.healthy", "healthy", "1 if the part is healthy, else 0", labels=("part",)),
    SelfMetric("artimon.stack.restarts", "restarts", "Restarts of the part", counter=True, labels=("part",)),
    SelfMetric(
        "artimon.stack.resident.bytes", "resident", "Memory of the part with its children", "bytes", labels=("part",)
    ),
)

TABLES: Mapping[str, tuple[SelfMetric, ...]] = MappingProxyType(
    {
        "agent": AGENT,
        "collector": COLLECTOR,
        "spark": SPARK,
        "compactor": COMPACTOR,
        "shard": SHARD,
        "api": API,
        "alerts": ALERTS,
        "mail": MAIL,
        "stack": STACK,
    }
)
"""Variables by part, besides those of every process."""
