"""Front door of the memory store: the buckets of one shard, fed by runs of samples. See varstore.store."""

from __future__ import annotations

from varstore.store.bucket_store import BucketStore, Run, Tally

__all__ = ["BucketStore", "Run", "Tally"]
