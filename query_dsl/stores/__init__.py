"""Stores that an evaluation queries, behind one protocol: `protocol.EngineStore`. Imports nothing from `evaluation`.

levels       levels at one time, and the reach of a store
limits       limits of a query, and its cancellation
sampled      request and answer for raw samples
protocol     EngineStore, its adapter for a plain store, its wrappers
rows, cutting, held, wire    raw samples into buckets, here and in Spark's tasks
history      samples of the raw table by selector and time
catalogue, past              the history as a store
seam, auto   memory and history combined
given        samples in Python lists, checked
"""
