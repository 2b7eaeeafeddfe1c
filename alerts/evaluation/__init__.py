"""Evaluation of all rules, once a minute.

Read `verdicts` (values and missing data to verdicts, pure), `shared_store` (questions that rules share),
`rule_evaluator` (one evaluation), `alert_engine` (minute by minute, one commit each) and `view` (what it shows).
May import `alerts.rules` and `alerts.state`.
"""
