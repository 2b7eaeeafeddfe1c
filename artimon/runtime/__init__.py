"""Runtime of every process: texts written by users, options of processes, configuration files, clients of servers.

Reading order: `text`, `process_options`; `config_model` (sections and their error messages), `config_file` (data with
positions). Imports `artimon.model` and `bookkeeper` only.
"""
