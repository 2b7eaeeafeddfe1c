"""Services of a process that have no domain of their own. Imports artimon.model and artimon.compute only.

Configuration files: `config_file` (text with positions), then `config_model` (pydantic models and their messages).
"""
