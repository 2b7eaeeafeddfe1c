"""Evaluation of all rules, once a minute.

Read `verdicts` (from values and missing data to verdicts, pure), `shared_store` (queries that rules share),
`rule_evaluator` (one evaluation), `alert_engine` (one commit each minute) and `alert_view` (its published state).
May import `alerts.rules` and `alerts.state`.
"""
