"""Runtime of every process: texts that people write, options of processes, configuration files.

Reading order: `text`, `process_options`; `config_model` (sections and the words of their errors), `config_file` (data
with positions). Imports `artimon.model` and `bookkeeper` only.
"""
