"""Functions of users over samples of the history in Spark, partition by partition: no sample comes to this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from artimon.rawtable.schema import raw_uri
from artimon.rawtable.table_reader import read_with_retry
from query_dsl.results.query_result import to_frame
from query_dsl.stores.history.engine import BINARY, History, run_in_group
from query_dsl.stores.history.local_reader import Progress, no_progress
from query_dsl.stores.history.sample_query import TooMuchHistory, max_samples
from query_dsl.tree.query_errors import QueryError

if TYPE_CHECKING:
    import pandas as pd

PartitionFunction = Callable[[Iterator["pd.DataFrame"]], Iterable["pd.DataFrame"]]
"""Called once for each partition of the samples, with its batches as frames; yields frames of results."""
_COLUMNS = ("series", "name", "source", "type", "time", "birth", "future", "integer", "double", "boolean", "string")


def _silent() -> AbstractContextManager[Progress]:
    return nullcontext(no_progress)


@dataclass(frozen=True, slots=True)
class HistorySelection:
    """Samples of the history that are not read yet, of any number: input of Spark."""

    history: History
    selector: str
    start: object
    end: object = "now"
    series: int | None = None
    display: Callable[[], AbstractContextManager[Progress]] = _silent
    """Opens what shows the progress of a call that has no `progress`."""

    def frame(self) -> Any:
        """Return the samples as a Spark frame. See History.frame."""
        return self.history.frame(self.selector, self.start, self.end, series=self.series)

    def map_partitions(
        self,
        function: PartitionFunction,
        *,
        labels: Sequence[str] = (),
        rows: int | None = None,
        progress: Progress | None = None,
        stop: threading.Event | None = None,
    ) -> pd.DataFrame:
        """Call `function` in the workers of Spark for each partition of the samples, and return the frames that it
        yields as one, in any order.

        The frames that it is given have the columns of History.frame but `labels`; `labels` names those that become
        columns. After a failure a partition is computed again, and all are if compaction removes a file.

        Raises TooMuchHistory beyond `rows` rows of results, HistoryInterrupted once `stop` is set, HistoryError if the
        function raises; and as History.read."""
        if clash := set(labels) & set(_COLUMNS):
            raise QueryError(f"the label {min(clash)} has the name of a column: take it from `series`")
        rows = max_samples() if rows is None else rows
        work, uri = partial(_apply, function, rows), raw_uri(self.history.hdfs)
        ended = stop or threading.Event()

        picked = [f"try_element_at(labels, {_literal(label)}) AS `{label.replace('`', '``')}`" for label in labels]

        def attempt(shown: Progress) -> Any:
            given: Any = self.frame().selectExpr(*_COLUMNS, *picked)
            return run_in_group(self.history.session(), given.mapInArrow(work, BINARY).toArrow, shown, ended)

        with self.display() as shown, self.history.lease_client() as zookeeper:
            found = read_with_retry(uri, lambda _table: attempt(progress or shown), zookeeper)
        return _joined(found.column(0), rows)


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _apply(function: PartitionFunction, rows: int, batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the results of one partition, a frame as the bytes of an Arrow stream; nothing after more than `rows`."""
    made = 0
    for frame in function(to_frame(pa.Table.from_batches([batch])) for batch in batches):
        table = pa.Table.from_pandas(frame)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], ["value"])
        made += len(table)
        if made > rows:
            return


def _joined(streams: Any, rows: int) -> pd.DataFrame:
    tables = [pa.ipc.open_stream(stream.as_buffer()).read_all() for stream in streams]
    if sum(map(len, tables)) > rows:
        raise TooMuchHistory(f"the function made more than {rows:,} rows, the limit: return fewer, or raise `rows`")
    return to_frame(pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({}))
