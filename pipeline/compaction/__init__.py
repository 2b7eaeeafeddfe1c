"""Compaction: replaces the files of closed hours and days of the raw table by fewer ones with the same rows.

Parts in reading order; each imports only those before it:

    order, memory        rows in the order of the files, without a comparison sort; memory that is given back
    runs                 files as sorted runs
    plan, digest         jobs that are due; digest that proves that no row was lost
    merge, encode        many runs to one order in bounded memory; the files that are written
    job                  one job: merge, prove, commit
    dead, tidy           files and commits that may be deleted
    compactor, service   all that is due, as a process of its own

It imports `artimon.rawtable` and below.
"""
