"""Evaluation of all rules, once a minute.

Read `verdicts` (from values and missing data to verdicts, pure), `shared_store` (queries that rules share),
`rule_evaluator` (one evaluation), `alert_engine` (one commit each minute) and `alert_view` (its published state).
`rule_replay` evaluates over the history, with answers of `replay_answers`; `replay_report` shows the result.
May import `alerts.rules` and `alerts.state`.
"""
