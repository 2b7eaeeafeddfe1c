"""Compaction: replaces the files of closed hours and days of the raw table by fewer ones with the same rows.

Modules in reading order; each imports only those before it:

    row_order                     sort order of rows, without a comparison sort
    sorted_runs                   files as sorted runs
    plan, row_digest              jobs that are due; digest that proves that no row was lost
    merge, sorted_files           merge of many runs in bounded memory; writer of the new files
    rollup_plan                   roll-ups that are due, stale or expired; raw files that wait for theirs
    compaction_settings, job      settings; one job: merge, prove, commit
    rollup_job                    roll-ups of the raw files of a day
    month_merger                  copies of the roll-ups of 1 d of a month in one file
    dead_files                    deletion of dead files and of old commits
    source_expiry                 daily expiry of sources and series
    rollup_keeper                 roll-ups: writes what is due, expires and deletes old ones
    compactor, compactor_process  everything that is due; the process

It imports `artimon.rawtable` and below.
"""
