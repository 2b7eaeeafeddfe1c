"""Rule files: from YAML to rules with places, the version of each file that is in force, and the shipped rules.

Read `rulefile`, then `rulebook`. The folder holds the shipped rule files too. May import `alerts.receivers` and
`alerts.state`.
"""
