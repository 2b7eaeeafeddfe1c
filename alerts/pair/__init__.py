"""Engines that share state, rules and receivers: one leads, the others follow it and take over.

Read `state_log` (the journal in Kafka, which fences former leaders), `engine_lease` (the election in ZooKeeper),
`rule_shares` (rules that other engines evaluate) and `pair_member` (role of this engine, and all of them together).
May import every part of alerts but `engine_process`.
"""
