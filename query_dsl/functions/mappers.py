"""Window functions of the language: what they are called and how they are described. What they do is in
artimon/compute/functions.py; an entry is its documentation and its test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

from artimon.compute.functions import FUNCTIONS, Function
from artimon.compute.params import REQUIRED as NO_DEFAULT
from artimon.compute.params import Param
from query_dsl.functions.registry import OF_SERIES, REQUIRED, Argument, Entry
from query_dsl.results.cells import Example
from query_dsl.tree.names import read_only_table

NO_WORDS: Mapping[str, str] = MappingProxyType({})
DDOF = "what is taken off the number of values that squares are divided by"


@dataclass(frozen=True, kw_only=True)
class Mapper(Function, Entry):
    """A window function as people meet it."""


UNITS = {"q": "share", "ddof": "values", "alpha": "share", "beta": "share"}
"""Of arguments that are numbers."""


def _mapper(
    name: str,
    summary: str,
    example: str,
    case: Example,
    words: Mapping[str, str] = NO_WORDS,
    case_args: str = "",
    unit: str = OF_SERIES,
) -> Mapper:
    """`words`: what each argument is, in the order of the function's parameters."""
    function = FUNCTIONS[name]
    given = {field.name: getattr(function, field.name) for field in fields(Function)}
    arguments = tuple(_argument(param, words[param.name]) for param in function.params)
    return Mapper(
        **given, summary=summary, example=example, case=case, arguments=arguments, case_args=case_args, unit=unit
    )


def _argument(param: Param, summary: str) -> Argument:
    default = REQUIRED if param.default is NO_DEFAULT else param.default
    bounds = {name: getattr(param, name) for name in ("least", "most", "above", "below", "choices")}
    return Argument(param.name, param.kind, summary, default, UNITS.get(param.name, ""), **bounds)


ROW = ((2.0, 8.0, None, 20.0),)

ENTRIES: Mapping[str, Mapper] = read_only_table(
    _mapper(
        "last",
        "Newest value; keeps the type. Missing once the source has said that the series ended.",
        'fetch(\'disk.free\').map("last", "5m")',
        Example(ROW, (2.0, 8.0, 8.0, 20.0)),
    ),
    _mapper(
        "first",
        "Oldest value; keeps the type. Approximate where the first bucket holds several samples.",
        'fetch(\'disk.free\').map("first", "5m")',
        Example(ROW, (2.0, 2.0, 8.0, 20.0)),
    ),
    _mapper(
        "min",
        "Smallest value; INTEGER and BOOLEAN give exact INTEGER, DOUBLE gives DOUBLE.",
        'fetch(\'disk.free\').map("min", "1h")',
        Example(ROW, (2.0, 2.0, 8.0, 20.0)),
    ),
    _mapper(
        "max",
        "Greatest value; INTEGER and BOOLEAN give exact INTEGER, DOUBLE gives DOUBLE.",
        'fetch(\'queue.length\').map("max", "5m")',
        Example(ROW, (2.0, 8.0, 8.0, 20.0)),
    ),
    _mapper(
        "sum",
        "Sum of all samples (DOUBLE); with min_count=0 the sum of nothing is 0.",
        'fetch(\'mail.sent\').map("sum", "5m")',
        Example(ROW, (2.0, 10.0, 8.0, 20.0)),
    ),
    _mapper(
        "mean",
        "Sum of all samples over their number (DOUBLE); of BOOLEAN the share of true.",
        'fetch(\'temperature\').map("mean", "5m")',
        Example(ROW, (2.0, 5.0, 8.0, 20.0)),
    ),
    _mapper(
        "count",
        "Number of samples (INTEGER), of any type; the count of nothing is 0.",
        'fetch(\'temperature\').map("count", "5m")',
        Example(ROW, (1.0, 2.0, 1.0, 1.0)),
        unit="samples",
    ),
    _mapper(
        "increase",
        "Growth of a counter; a new birth counts from 0; INTEGER stays exact. Adjacent windows add up exactly.",
        "fetch('http.requests').increase(\"5m\")",
        Example(ROW, (None, 6.0, 6.0, 12.0)),
    ),
    _mapper(
        "delta",
        "Difference to the value before the window, births disregarded; INTEGER stays exact.",
        "fetch('disk.used').delta(\"1h\")",
        Example(ROW, (None, 6.0, 6.0, 12.0)),
    ),
    _mapper(
        "rate",
        "Increase a second, from the first predecessor used to the last sample, without extrapolation (DOUBLE).",
        "fetch('http.requests').rate(\"5m\")",
        Example(ROW, (None, 600.0, 600.0, 600.0)),
        unit="of the series, a second",
    ),
    _mapper(
        "irate",
        "Growth a second between the two newest buckets with samples; from 0 if the newer is of another life (DOUBLE).",
        "fetch('http.requests').irate(\"5m\")",
        Example(ROW, (None, 600.0, None, None)),
        unit="of the series, a second",
    ),
    _mapper(
        "changes",
        "How often a value differs from the one before it in the window (INTEGER), STRING too; NaN equals NaN.",
        "fetch('build.version').changes(\"1h\")",
        Example(ROW, (0.0, 1.0, 0.0, 0.0)),
        unit="changes",
    ),
    _mapper(
        "resets",
        "How many lives begin in the window within `max_gap` of another (INTEGER); of computed values: decreases.",
        "fetch('http.requests').resets(\"1h\")",
        Example(ROW, (0.0, 0.0, 0.0, 0.0)),
        unit="resets",
    ),
    _mapper(
        "quantile",
        "Value below which the share `q` of the values lies (DOUBLE); NaN where one of them is NaN.",
        'fetch(\'latency\').map("quantile", "15m", 0.9)',
        Example(ROW, (2.0, 6.5, 8.0, 20.0)),
        {"q": "how much of the values, 0 to 1", "method": "how it lies between two values, as numpy calls it"},
        "0.75",
    ),
    _mapper(
        "median",
        "The middle value, or the mean of the two middle ones (DOUBLE); NaN where one value is NaN.",
        'fetch(\'latency\').map("median", "15m")',
        Example(ROW, (2.0, 5.0, 8.0, 20.0)),
    ),
    _mapper(
        "sd",
        "Standard deviation (DOUBLE), in two passes; missing where there are no more than `ddof` values.",
        'fetch(\'latency\').map("sd", "15m")',
        Example(ROW, (None, 18.0**0.5, None, None)),
        {"ddof": DDOF},
    ),
    _mapper(
        "var",
        "Variance (DOUBLE), in two passes; missing where there are no more than `ddof` values.",
        'fetch(\'latency\').map("var", "15m")',
        Example(ROW, (None, 18.0, None, None)),
        {"ddof": DDOF},
        unit="of the series, squared",
    ),
    _mapper(
        "mad",
        "Median of the distances to the median, not scaled (DOUBLE).",
        'fetch(\'latency\').map("mad", "15m")',
        Example(ROW, (0.0, 3.0, 0.0, 0.0)),
    ),
    _mapper(
        "zscore",
        "Standard deviations that the newest value lies off the mean (DOUBLE); missing below two values.",
        "fetch('latency').zscore(\"15m\", robust=True)",
        Example(ROW, (None, 3 / 18.0**0.5, None, None)),
        {"robust": "median for the mean, mad / 0.6745 for the deviation", "ddof": DDOF},
        unit="standard deviations",
    ),
    _mapper(
        "ewma",
        "Exponentially weighted mean (DOUBLE): the oldest value, moved by each later one by `alpha` of the way.",
        "fetch('load').ewma(\"10m\", alpha=0.3)",
        Example(ROW, (2.0, 6.5, 8.0, 20.0)),
        {"alpha": "weight of a value, more than 0 and at most 1"},
        "0.75",
    ),
    _mapper(
        "holt",
        "Level at the newest value by double exponential smoothing (DOUBLE); missing below two values.",
        "fetch('load').holt(\"10m\", alpha=0.5, beta=0.1)",
        Example(ROW, (None, 8.0, None, None)),
        {"alpha": "weight of a value for the level, between 0 and 1", "beta": "weight of a step for the trend"},
        "0.5, 0.1",
    ),
    _mapper(
        "derivative",
        "Slope a second of the least-squares line through the values (DOUBLE); missing below two values.",
        "fetch('disk.used').derivative(\"1h\")",
        Example(ROW, (None, 600.0, None, None)),
        unit="of the series, a second",
    ),
    _mapper(
        "predict_linear",
        "That line `horizon` after the time of the point (DOUBLE): in how long is the disk full.",
        'fetch(\'disk.free\').predict_linear("1h", horizon="4h")',
        Example(ROW, (None, 14.0, None, None)),
        {"horizon": "how far ahead"},
        "'10ms'",
    ),
)
