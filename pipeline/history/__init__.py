"""Changes to the history besides appends: imports of files, deletions, new labels. It writes the raw table by the files
and the commits of compaction.

Modules in reading order; each imports only those before it:

    row_selection   selected rows of a table
    found_starts    start times of counters, found by their resets
    earlier_counts  last values of counters before an import
    day_runs        rows of an import on the local disk, a file for each day
    importer        one file: rows by day, their proof, commits
    rewrite         files without the selected rows or with new labels for them, and the roll-ups of these files
    deletion        plan, token, deletion, proof
    series_moves    other labels for the selected rows: a relabel
"""
