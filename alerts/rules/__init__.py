"""Rule files: from YAML to rules with positions, the version of each file in force, and the shipped rules.

Read `rule_file`, then `rule_folder`. The folder also contains the shipped rule files. May import `alerts.receivers` and
`alerts.state`.
"""
