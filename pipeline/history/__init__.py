"""Changes to the history besides appends: imports of files, deletions, new labels. It writes the raw table by the files
and the commits of compaction.

Modules in reading order; each imports only those before it:

    found_starts   start times of counters, found by their resets
    day_runs       rows of an import on the local disk, a file for each day
    importer       one file: rows by day, their proof, commits
    row_selection  selected rows of a table
    rewrite        files without the selected rows, and the roll-ups of these files
    deletion       plan, token, deletion, proof
"""
