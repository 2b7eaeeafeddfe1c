"""Spark application: two queries over the topic of samples, and what goes with them.

Parts in reading order; each imports only those before it:

    messages, topic, shards    verdict on a message; a topic of Kafka; shards that are fed
    rows, output, trial        batches to data files; suspicious messages are tried in a process of their own
    tasks, feeding             work of a task: write data files; send columns to shards
    source, suspects, pace     lives of a query; what killed a worker; size and frequency of appends
    generations, gaps, cuts    topics that follow one another; what the log lost
    raw, buckets               the two queries
    acks, retention            how far the table is; what Kafka may forget
    keeper, deadletters        table of series; messages that could not be stored
    application                all of it as one process

It imports `artimon.rawtable` and below; it alone, with the history engine, imports pyspark.
"""
