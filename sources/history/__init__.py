"""Readers of files that are imported into the history, from parts to readers:

import_builder     samples of a file, collected into chunks
file_lines         lines of a file, plain or compressed
text_formats       text of `promtool tsdb dump`, OpenMetrics
victoria_format    lines of JSON of VictoriaMetrics
column_mapping     columns of a table and their meaning
table_formats      CSV, Parquet, Arrow
import_reader      the readers by the name of their format
"""
