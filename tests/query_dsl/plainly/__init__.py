"""An evaluator of queries written a second time, from the documents, for comparison: slow, plain, sample by sample.

It reads the tree that the parser makes and nothing else of query_dsl. Values are Python's own: int, float, bool, str,
and None for missing.
"""

from __future__ import annotations

from tests.query_dsl.plainly.run import answer
from tests.query_dsl.plainly.things import Answer, Raw, Refused, Sample, World, in_succession

__all__ = ["Answer", "Raw", "Refused", "Sample", "World", "answer", "in_succession"]
