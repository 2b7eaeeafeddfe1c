"""Arithmetic of windows and classes over bucket arrays, shared by the evaluator and by the shards that work for it.

Nothing here knows of labels, texts of queries or stores: arrays in, arrays out, so that both give the same answers."""
