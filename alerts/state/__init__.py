"""State of alerts as data, and the database that stores it.

Read `conditions` and `rule` (rules as data), `alert` (state machine of one alert, pure), `notification` (messages to
receivers), `row_changes` (changes of rows for other engines), `alert_database` (all state in one SQLite file) and
`publication` (the znode, for engine and API).
May import no other part of `alerts`.
"""
