"""State of alerts as data, and the file that keeps it.

Read `conditions` and `rule` (what is asked), `alert` (the life of one alert, pure), `notification` (what receivers are
told), `database` (all of it in one SQLite file) and `publication` (the znode that shows it, for engine and API).
May import no other part of `alerts`.
"""
