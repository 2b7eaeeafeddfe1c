"""Tests of roll-ups: rows, table, compaction, reading."""
