"""Arithmetic of windows and classes over bucket arrays, shared by the evaluator and the shards (pushdown).

Arrays in, arrays out, without labels, query texts or stores: evaluator and shards therefore give equal answers."""
