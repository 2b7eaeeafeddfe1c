"""Drop-in files: lines of text in a folder of the host.

Read `line_grammar`, `series_columns`, `file_parser` (bytes to columns), `line_start_times` (new samples, pure),
`timed_series` (samples with times of their own, also of receivers), `file_source` (one file), `folder` with
`folder_files` (all files).
May import `sources.delivery` and the layers below it.
"""
