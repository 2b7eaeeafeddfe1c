"""Rolling files on HDFS or on this machine: one writer, for collectors without Kafka and for the sink of events.

    file_store    folders of files: create, rename, settle; every call has a deadline
    rolling_file  one file from its unfinished to its final name, and recovery after a dead writer

It imports `pipeline.wal` for files of this machine, and `artimon.model`. Its users decide when a file ends and when
its batches are acked: `pipeline.collector.hdfs.stream_state`, `pipeline.flows.sinks.files_sink`.
"""
