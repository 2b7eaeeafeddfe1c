"""PromQL over the stores of the query language.

Modules in reading order: `tree` (the parser and its nodes), `label_sets`, `promql_values` and `samples` (values of an
evaluation), `paired_sums`, `range_functions`, `vector_functions`, `histograms`, `aggregations`, `vector_operators`
(functions of values), `evaluation` (nodes), `promql_query` (front door), `store_samples` (source of samples),
`scripted_samples` and `series_notation` (samples of tests),
`tree_json` (the tree for clients), `dsl_text` (the query in our language).

May import query_dsl.stores, query_dsl.language, query_dsl.results, query_dsl.tree, artimon.compute, artimon.model and
artimon.runtime."""

from query_dsl.promql.dsl_text import to_dsl
from query_dsl.promql.promql_query import PromqlResult, instant_query, query_store, range_query, read_samples
from query_dsl.promql.tree import NotSupported, PromqlError, Query, format_text, parse
from query_dsl.promql.tree_json import to_json

__all__ = [
    "NotSupported",
    "PromqlError",
    "PromqlResult",
    "Query",
    "format_text",
    "instant_query",
    "parse",
    "query_store",
    "range_query",
    "read_samples",
    "to_dsl",
    "to_json",
]
