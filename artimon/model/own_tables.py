"""Which figures of which process become which own variables. docs/variables.md lists them; a test compares the two."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from artimon.model.own import Own, Shape

AGENT = (
    Own("artimon.agent.batches.accepted", "accepted_batches", "Batches fsynced in the log", counter=True),
    Own("artimon.agent.samples.accepted", "accepted_samples", "Samples in them", counter=True),
    Own("artimon.agent.bytes.accepted", "accepted_bytes", "Bytes in them", "bytes", counter=True),
    Own("artimon.agent.batches.pending", "pending_batches", "Batches and announcements not acked"),
    Own("artimon.agent.batches.unsent", "unsent_batches", "Of these, the ones that Kafka does not have"),
    Own("artimon.agent.batches.sent", "sent_batches", "Batches and announcements that Kafka took", counter=True),
    Own("artimon.agent.batches.acked", "acked_batches", "Batches acked and forgotten", counter=True),
    Own("artimon.agent.batches.resent", "resent_batches", "Batches sent again on evidence of loss", counter=True),
    Own("artimon.agent.batches.damaged", "damaged_batches", "Batches that the disk did not give back", counter=True),
    Own("artimon.agent.unacked.ms", "oldest_unacked_ms", "Age of the oldest batch not acked", "ms"),
    Own("artimon.agent.unsent.ms", "oldest_unsent_ms", "Age of the oldest batch that Kafka does not have", "ms"),
    Own("artimon.agent.nacks", "nacks", "Batches that a collector refused", counter=True, labels=("reason",)),
    Own("artimon.agent.calls", "calls", "Calls of collectors", counter=True),
    Own("artimon.agent.calls.unanswered", "calls_unanswered", "Those without answer", counter=True, labels=("reason",)),
    Own("artimon.agent.flying.bytes", "flying_bytes", "Bytes on their way to collectors", "bytes"),
    Own("artimon.agent.bytes.carried", "carried_bytes", "Bytes of all calls, repeats too", "bytes", counter=True),
    Own("artimon.agent.acks", "ack_waits", "Batches whose wait for the ack was measured", counter=True),
    Own("artimon.agent.acks.ms", "ack_waits_ms", "Their waits, from the log to the ack", "ms", counter=True),
    Own("artimon.agent.ack.p50.ms", "ack_wait_p50_ms", "Half of them were shorter, since the process began", "ms"),
    Own("artimon.agent.ack.p99.ms", "ack_wait_p99_ms", "99 of 100 were shorter", "ms"),
    Own("artimon.agent.source.lag.ms", "source_lag_ms", "From a poll to its ack, by source", "ms", labels=("source",)),
    Own("artimon.agent.backlog.held", "backlog_held", "1 while the backlog trickles, as the table is behind, else 0"),
    Own("artimon.agent.refused", "log_refused", "Polls that the log refused", counter=True, labels=("reason",)),
    Own("artimon.agent.log.bytes", "log_bytes", "Size of the log on disk", "bytes"),
    Own("artimon.agent.log.quota.bytes", "log_quota_bytes", "What it may grow to", "bytes"),
    Own("artimon.agent.aside.batches", "aside.errors", "Batches that nobody takes, set aside"),
    Own("artimon.agent.aside.pieces", "aside.damaged", "Damaged pieces of the log, set aside"),
    Own("artimon.agent.collectors", "collectors", "Collectors known"),
    Own("artimon.agent.collectors.up", "collectors_up", "Of these, the ones not avoided after a failure"),
    Own("artimon.agent.collectors.slow", "collectors_slow", "How often one was found to be slow", counter=True),
    Own("artimon.agent.endpoints.up", "endpoints_up", "Processes that answered their last poll"),
    Own("artimon.agent.endpoints.down", "endpoints_down", "Processes that did not, for an hour after they vanished"),
    Own("artimon.agent.polls", "polls", "Polls of processes", counter=True),
    Own("artimon.agent.poll.errors", "poll_errors", "Polls that failed", counter=True, labels=("reason",)),
    Own("artimon.agent.samples.polled", "polled_samples", "Samples that sources yielded", counter=True),
    Own("artimon.agent.ticks.missed", "missed_ticks", "Polls left out because the one before was late", counter=True),
    Own("artimon.agent.sink.refused", "sink_refused", "Polls dropped because the log took no more", counter=True),
    Own("artimon.agent.sources.refused", "source_refused", "Refused at each source's last poll", labels=("reason",)),
    Own("artimon.agent.flow.events", "flow_events", "Events that a flow took", counter=True, labels=("flow",)),
    Own("artimon.agent.flow.refused", "flow_refused", "Calls refused", counter=True, labels=("flow", "reason")),
    Own("artimon.agent.flow.delivered", "flow_delivered", "Parcels delivered", counter=True, labels=("flow",)),
    Own("artimon.agent.flow.rejected", "flow_rejected", "Parcels set aside", labels=("flow",)),
    Own("artimon.agent.flow.waiting", "flow_waiting", "Parcels in the channel", labels=("flow",)),
    Own("artimon.agent.flow.oldest.ms", "flow_oldest_ms", "Age of the oldest of these", "ms", labels=("flow",)),
    Own("artimon.agent.flow.deaths", "flow_deaths", "Threads that died", counter=True, labels=("flow",)),
    Own("artimon.agent.flow.alarms", "flow_alarms", "Work without progress", counter=True, labels=("flow",)),
    Own("artimon.agent.zookeeper.failures", "zookeeper_failures", "Failed calls of the discovery", counter=True),
    Own("artimon.agent.batches.direct", "direct_batches", "Batches that went past the log", counter=True),
    Own("artimon.agent.batches.lost", "lost_batches", "Accepted and given up", counter=True, labels=("reason",)),
    Own("artimon.agent.batches.moved", "moved_batches", "Never sent, moved to another site", counter=True),
    Own("artimon.agent.batches.released", "released_batches", "Released from a site by an operator", counter=True),
    Own("artimon.agent.problems", "problems", "Problems that hold now", shape=Shape.COUNT),
)

COLLECTOR = (
    Own("artimon.collector.batches", "batches", "Batches and announcements written to Kafka", counter=True),
    Own("artimon.collector.bytes", "bytes", "Bytes in them", "bytes", counter=True),
    Own("artimon.collector.held.bytes", "held_bytes", "Bytes of calls that wait for Kafka", "bytes"),
    Own("artimon.collector.agents", "agents", "Agents that share its credit"),
    Own("artimon.collector.calls", "calls", "Calls answered", counter=True),
    Own("artimon.collector.calls.ms", "calls_ms", "Their time", "ms", counter=True),
    Own("artimon.collector.call.longest.ms", "longest_call_ms", "The longest since the process began", "ms"),
    Own("artimon.collector.nacks", "nacks", "Batches refused", counter=True, labels=("reason",)),
    Own("artimon.collector.files", "direct.rolls", "Files of batches that were closed", counter=True),
    Own("artimon.collector.files.failed", "direct.failed_rolls", "Files that failed, acking nothing", counter=True),
    Own("artimon.collector.files.bytes", "direct.waiting_bytes", "Bytes that wait in memory for a file", "bytes"),
    Own("artimon.collector.files.open.ms", "direct.oldest_open_ms", "Age of the oldest file not closed", "ms"),
    Own("artimon.kafka.bytes", "kafka.bytes", "Bytes of the topic of samples, as each collector counts them", "bytes"),
    Own("artimon.kafka.quota.bytes", "kafka.quota_bytes", "What they may grow to, 0 for any number", "bytes"),
    Own("artimon.kafka.full", "kafka.full", "1 while collectors refuse samples for it, else 0"),
    Own("artimon.collector.answer.age.ms", "last_answer_ms", "Since the last call was answered", "ms", shape=Shape.AGE),
)

SPARK = (
    Own("artimon.spark.lag.ms", "raw.lag_ms", "How long the oldest batch waits for the raw table", "ms"),
    Own("artimon.spark.behind", "raw.behind", "Batches of Kafka that the raw table does not hold"),
    Own("artimon.spark.rows", "raw.since_start.rows", "Rows appended to the raw table", counter=True),
    Own("artimon.spark.batches", "raw.since_start.batches", "Batches in them", counter=True),
    Own("artimon.spark.duplicates", "raw.since_start.duplicates", "Batches left out as repeats", counter=True),
    Own("artimon.spark.deadletters", "raw.since_start.dead_letters", "Batches set aside as unreadable", counter=True),
    Own("artimon.raw.gaps", "raw.since_start.gaps", "Ranges named lost or cut", counter=True, labels=("kind",)),
    Own("artimon.spark.commits", "raw.since_start.appends", "Appends to the raw table", counter=True),
    Own("artimon.spark.commits.ms", "raw.since_start.appends_ms", "Their time, tasks and commit", "ms", counter=True),
    Own("artimon.spark.commit.ms", "raw.append_ms", "Time of the last one", "ms"),
    Own("artimon.spark.commit.age.ms", "raw.last_commit_ms", "Since the last one", "ms", shape=Shape.AGE),
    Own("artimon.spark.table.version", "raw.version", "Version of the raw table"),
    Own("artimon.spark.table.rows", "raw.rows", "Rows in the raw table since it was made"),
    Own("artimon.spark.buckets.lag.ms", "buckets.lag_ms", "How long the oldest batch waits for the shards", "ms"),
    Own("artimon.spark.buckets.behind", "buckets.behind", "Batches of Kafka that were not fed"),
    Own("artimon.spark.buckets.ranges", "buckets.ranges", "Ranges of partitions fed", counter=True),
    Own("artimon.spark.buckets.runs", "buckets.runs", "Micro-batches of the buckets query", counter=True),
    Own("artimon.spark.buckets.runs.ms", "buckets.runs_ms", "Their time", "ms", counter=True),
    Own("artimon.spark.buckets.run.ms", "buckets.run_ms", "Time of the last one", "ms"),
    Own("artimon.spark.shards", "buckets.shards", "Shards known to the buckets query", shape=Shape.COUNT),
    Own("artimon.spark.shards.behind", "buckets.lagging", "Of these, the ones that lack something", shape=Shape.COUNT),
    Own("artimon.spark.restarts", "restarts", "Restarts of a query in the process", counter=True, labels=("query",)),
)

COMPACTOR = (
    Own("artimon.compactor.jobs", "jobs", "Hours and days compacted", counter=True),
    Own("artimon.compactor.rows", "rows", "Rows in them", counter=True),
    Own("artimon.compactor.bytes.before", "bytes_before", "Size of the files replaced", "bytes", counter=True),
    Own("artimon.compactor.bytes.after", "bytes_after", "Size of those that replaced them", "bytes", counter=True),
    Own("artimon.compactor.waiting", "waiting", "Jobs that are due"),
    Own("artimon.compactor.behind.ms", "behind_ms", "How much older than the newest the oldest of them is", "ms"),
    Own("artimon.compactor.alarms", "alarms", "Jobs abandoned because the proof failed", counter=True),
    Own("artimon.compactor.givenup", "given_up", "Of these, the ones not tried again until something changes"),
    Own("artimon.compactor.expired", "expired_files", "Files expired", counter=True),
    Own("artimon.compactor.deleted", "deleted.files", "Dead files deleted", counter=True),
    Own("artimon.compactor.orphans", "orphans", "Of these, files that no commit ever named", counter=True),
    Own("artimon.compactor.dead", "dead.files", "Dead files that a reader may still need"),
    Own("artimon.compactor.dead.bytes", "dead.bytes", "Their size", "bytes"),
    Own("artimon.compactor.live", "live.files", "Files of the raw table"),
    Own("artimon.compactor.live.bytes", "live.bytes", "Their size", "bytes"),
    Own("artimon.compactor.live.openhour", "live.open_hour", "Most files in an hour that is open"),
    Own("artimon.compactor.live.closedhour", "live.closed_hour", "Most files in an hour that is closed"),
    Own("artimon.compactor.live.day", "live.day", "Most files in a day"),
    Own("artimon.compactor.live.openhours", "live.open_hours", "Hours that are open"),
    Own("artimon.compactor.settled.age.ms", "settled_ms", "Since the appends that are all in", "ms", shape=Shape.AGE),
)

SHARD = (
    Own("artimon.shard.series", "series", "Series announced"),
    Own("artimon.shard.slots", "slots", "Series with samples"),
    Own("artimon.shard.capacity", "capacity", "Series that there is room for"),
    Own("artimon.shard.unannounced", "unannounced", "Series with samples and without announcement"),
    Own("artimon.shard.samples.applied", "applied", "Samples put into buckets", counter=True),
    Own("artimon.shard.batches.repeated", "repeated", "Batches dropped as repeats", counter=True),
    Own("artimon.shard.samples.late", "late", "Samples too old for every level", counter=True),
    Own("artimon.shard.samples.future", "future", "Samples beyond the newest row", counter=True),
    Own("artimon.shard.samples.conflicts", "conflicts", "Samples whose type the series refuses", counter=True),
    Own("artimon.shard.samples.refused", "refused", "Samples of series for which there is no room", counter=True),
    Own("artimon.shard.clashes", "clashes", "Fingerprints announced with two texts"),
    Own("artimon.shard.refilling", "refilling", "Batches to go until answers are whole again"),
    Own("artimon.shard.vshards.wanted", "vshards_wanted", "Virtual shards that it is to hold"),
    Own("artimon.shard.vshards.ready", "vshards_ready", "Virtual shards that it holds whole"),
    Own("artimon.shard.vshards.lacking", "vshards_lacking", "Virtual shards that lack what Kafka deleted unread"),
    Own("artimon.shard.offsets.lacking", "offsets_lacking", "Offsets that Kafka deleted before they were read"),
    Own("artimon.shard.refills", "refills", "Refills because of these, from the raw table", counter=True),
    Own("artimon.shard.lag.ms", "lag_ms", "How long Kafka has held what it lacks", "ms"),
    Own("artimon.shard.newest.age.ms", "newest_sample_ms", "Since the newest poll it holds", "ms", shape=Shape.AGE),
    Own("artimon.shard.queries", "questions.selects", "Questions for buckets answered", counter=True),
    Own("artimon.shard.queries.ms", "questions.selects_ms", "Their time, refused ones included", "ms", counter=True),
    Own("artimon.shard.queries.refused", "questions.refused", "Questions for buckets refused", counter=True),
)

API = (
    Own("artimon.api.requests", "requests", "Requests answered", counter=True, labels=("route", "status")),
    Own("artimon.api.requests.ms", "requests_ms", "Their time", "ms", counter=True, labels=("route",)),
    Own("artimon.api.errors", "errors", "Requests refused or failed", counter=True, labels=("status",)),
    Own("artimon.api.running", "running", "Requests under way"),
)

ALERTS = (
    Own("artimon.alerts.rules", "rules", "Rules by state", labels=("state",)),
    Own("artimon.alerts.alerts", "alerts", "Alerts by state", labels=("state",)),
    Own("artimon.alerts.evaluations", "evaluations", "Evaluations of all rules", counter=True),
    Own("artimon.alerts.evaluation.ms", "duration_ms", "Duration of the last one", "ms"),
    Own("artimon.alerts.evaluation.age.ms", "last_ms", "Since the bucket it looked at ended", "ms", shape=Shape.AGE),
    Own("artimon.alerts.questions", "questions", "Selects that the last one took"),
    Own("artimon.alerts.minutes.missed", "missed", "Minutes never evaluated since the state began"),
    Own("artimon.alerts.mails.made", "mail.made", "Mails put into the outbox", counter=True),
    Own("artimon.alerts.mails.sent", "mail.sent", "Mails that the SMTP server took", counter=True),
    Own("artimon.alerts.mails.failed", "mail.failed", "Mails that it refused for ever", counter=True),
    Own("artimon.alerts.mails.dropped", "mail.dropped", "Mails dropped because too many waited", counter=True),
    Own("artimon.alerts.mails.pending", "mail.pending", "Mails that wait"),
    Own("artimon.alerts.problems", "problems", "Problems that hold now", shape=Shape.COUNT),
)

MAIL = (
    Own("artimon.mail.accepted", "accepted", "Mails taken and written to disk", counter=True),
    Own("artimon.mail.refused", "refused", "Mails that could not be written", counter=True),
    Own("artimon.mail.connections", "connections", "Open connections"),
    Own("artimon.mail.connections.refused", "turned_away", "Connections beyond the limit", counter=True),
    Own("artimon.mail.kept", "kept", "Mails kept"),
    Own("artimon.mail.kept.bytes", "bytes", "Their size", "bytes"),
    Own("artimon.mail.removed", "removed", "Mails removed to make room", counter=True),
)

STACK = (
    Own("artimon.stack.healthy", "healthy", "1 if the part is healthy, else 0", labels=("part",)),
    Own("artimon.stack.restarts", "restarts", "Restarts of the part", counter=True, labels=("part",)),
    Own("artimon.stack.resident.bytes", "resident", "Memory of the part with its children", "bytes", labels=("part",)),
)

TABLES: Mapping[str, tuple[Own, ...]] = MappingProxyType(
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
"""Part -> its variables, besides those of every process."""
