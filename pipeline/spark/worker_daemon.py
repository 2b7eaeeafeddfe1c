"""Daemon of Spark's Python workers, which imports what tasks need before it forks: workers share pages and time.

`pyspark.daemon` imports nothing, because libraries may start threads, which a fork would not copy. Those of Arrow and
Delta are the allocators' own, which handle forks.
"""

from __future__ import annotations

import gc

import pyspark.daemon
import pyspark.worker

import pipeline.spark.feed_task
import pipeline.spark.raw_task  # noqa: F401
from artimon.runtime.arrow_setup import defer_pandas

if __name__ == "__main__":
    defer_pandas()
    gc.collect()
    gc.freeze()  # a collection would write to all pages and so copy them
    pyspark.daemon.manager()
