"""HTTP API of an engine: Alertmanager's API v2, acknowledgements, the audit log and the history of alerts.

Read `alert_json` (forms of the API), `handlers` (routes, the routing file without secrets) and `engine_server` (the
listener). May import every part of alerts but `engine_process`.
"""
