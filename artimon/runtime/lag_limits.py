"""Limits of lags for the health of a stack and of a cluster.

The lag of a process does not count in its first minute.
"""

from __future__ import annotations

GRACE_S = 60.0
"""Grace period after the start of a process, whose lag is not checked: it may have to catch up first."""
RAW_INTERVAL_MS = 30_000
"""Default interval between two appends of the raw table, if Spark reports none."""
INTERVALS = 3
"""Limit of the age of unacked batches, and of Kafka's backlog for the raw table, in append intervals."""
RAW_LAG_MS = 120_000
"""Lowest limit of the lag of the raw table behind Kafka."""
ACK_AGE_MS = 60_000
"""Allowance for the batch's way to Kafka and the ack's way back through ZooKeeper."""
UNSENT_AGE_MS = 30_000
"""Limit of the age of the oldest unsent batch, and of a collector's silence while batches wait."""
STORE_WAIT_MS = 5_000
"""Limit of the time that a collector keeps a call waiting for its store: half of the time after which it refuses."""
FILE_OVERDUE_MS = 60_000
"""Limit of the time that a collector needs to close a file after its roll is due."""
COMPACTION_AGE_MS = 3 * 3_600_000
"""Limit of the age of the oldest waiting compaction job, relative to the newest hour."""
OPEN_HOURS = 6
"""Limit of the number of hours that are open at once."""
COMPACTOR_FAILING_MS = 300_000
"""Limit of the time for which the compactor fails."""
SHARD_LAG_MS = 30_000
"""Limit of the lag of the shards behind Kafka, and of one shard behind the others."""
