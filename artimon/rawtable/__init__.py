"""The raw table, which holds every sample on HDFS: writers and readers.

There are four Delta tables: `raw` (samples), `rollups` (their buckets of 5 min, 1 h and 1 d), `sources` (names of
sources and their numbers) and `series` (announcements). The Spark application appends, the compactor replaces files by
fewer ones and writes roll-ups, and shards, history queries and proofs read. Formats: docs/formats/raw.md,
docs/formats/rollups.md, docs/formats/series.md.

Modules in reading order; each imports only those before it:

    schema           columns, locations, data files, periods
    file_statistics  statistics of a file, by which readers skip it
    value_columns    values of rows as types and cells
    lane_columns     lanes of the state in a commit
    table_state      state of an append: offsets, lanes, gaps; and the step to the next one. Pure
    delta            one Delta table: open, refresh, commit
    head             newest append: the only parser of commits
    parquet_reader   data files read by ranges, which may stay open
    table_reader     leases on versions, reads of a whole version, tables that stay open
    rollup_rows      rows of roll-ups: made of samples, merged. Pure
    term_index       row groups of a file of series by name and label
    clustered_copy   rows of a file of series, those that began together side by side
    merged_files     files that a merge writes
    merged_table     a table of many small commits: merges, expiry of rows, deletion of files
    commit           append, replace and expire: compare-and-set on the version
    rollups          table of roll-ups
    sql_views        views of all tables for SQL engines. Pure
    sources          numbers of sources
    announced_rows   rows of the table of series, and their merge
    series_delta     table of series

Imports `artimon.model`, `artimon.runtime` and libraries (pyarrow, deltalake, kazoo), never pyspark or its own users.
"""
