"""Rolling files on HDFS or on this machine: one writer, for collectors without Kafka and for the sink of events.

    store         folders of files: create, rename, settle; every call has a deadline
    rolling_file  one file from its unfinished to its final name, and what a dead writer left of it

It imports `pipeline.wal` for files of this machine, and `artimon.model`. When a file ends, and what may be acked then,
its users decide: `pipeline.collector.direct.roll`, `pipeline.flows.sinks.files`.
"""
