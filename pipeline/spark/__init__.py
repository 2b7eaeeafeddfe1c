"""Spark application: two queries over the topic of samples, with the services around them.

Modules in reading order; each imports only those before it:

    message_checks    validation of a message
    topic_client      client for one Kafka topic
    raw_file, raw_file_writer    batches to data files
    decoder_trial     decoding of suspicious messages in a subprocess
    raw_task          work of a task of the raw query: write data files
    feed_task         work of a task of the buckets query: send columns to shards
    worker_daemon     start of Python workers
    streaming_query   Kafka source
    suspects          digests of messages that killed a worker
    append_pace       size and frequency of appends
    generations       succession of topics
    gap_report        lost offset ranges
    log_truncation    truncated partitions
    raw_query, buckets_query    the two queries
    acks_publisher    committed offsets for agents
    retention         trimming of Kafka
    series_writer     table of series
    dead_letters      messages that could not be stored
    application       all of it as one process

It imports `artimon.rawtable` and below; only it and the history engine import pyspark.
"""
