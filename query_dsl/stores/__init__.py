"""Stores that an evaluation asks, behind one protocol: `protocol.EngineStore`. It imports nothing of the evaluation.

levels       levels at a moment, and how far back a store reaches
limits       cost that a query may have, and its end
sampled      request and answer for raw samples
protocol     EngineStore, its adapter for a plain store, its wrappers
rows, cutting, held, wire    raw samples into buckets, here and in Spark's tasks
history      samples of the raw table by selector and time
catalogue, recall, past      the history as a store
seam, auto   memory and history side by side
given        samples in Python lists, checked
"""
