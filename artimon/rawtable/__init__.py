"""The raw table: every sample on HDFS, for everyone who writes or reads it.

Three Delta tables stand side by side: `raw` (samples), `sources` (numbers of the names of sources) and `series` (what
was announced). The Spark application appends, the compactor replaces files by fewer ones, and shards, history queries
and proofs read. Formats: docs/formats/raw.md, docs/formats/series.md.

Parts in reading order; each imports only those before it:

    schema       columns, places, data files, periods
    statistics   statistics of a file, by which readers skip it
    state        state of an append: offsets, lanes, gaps; and the step to the next one. Pure
    delta        one Delta table: open, refresh, commit
    reader       leases on versions, and reading a version as a whole
    parquet      data files read by ranges
    head         newest append: the one parser of what commits say
    commit       append, replace and expire: compare-and-set on the version
    sources      numbers of sources
    series_rows  rows of the table of series, and how they merge
    series       table of series

It imports `artimon.model` and libraries (pyarrow, deltalake, kazoo), never pyspark, and never who uses it.
"""
