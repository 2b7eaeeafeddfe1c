"""Spark application: two queries over the topic of samples, with the services around them.

Modules in reading order; each imports only those before it:

    messages, topic            validation of a message; client for one Kafka topic
    rows, output, trial        batches to data files; suspicious messages are decoded in a subprocess first
    tasks, feeding             work of a task: write data files; send columns to shards
    source, suspects, pace     Kafka source; digests of messages that killed a worker; size and frequency of appends
    generations, gaps, cuts    succession of topics; lost offset ranges
    raw, buckets               the two queries
    acks, retention            committed offsets for agents; trimming of Kafka
    keeper, deadletters        table of series; messages that could not be stored
    application                all of it as one process

It imports `artimon.rawtable` and below; it alone, with the history engine, imports pyspark.
"""
