"""The history engine: samples of the raw table by selector and time, through Spark or in this process.

selector -> table of series -> sources and fingerprints -> files whose statistics allow them -> only these are read.
This is the one module besides pipeline.spark that imports pyspark, and only once Spark is wanted. docs/history.md.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
from deltalake.exceptions import DeltaError, TableNotFoundError
from kazoo.client import KazooClient

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.value_traits import VALUE_COLUMNS
from artimon.rawtable.delta import ListedTable, first_line
from artimon.rawtable.rollups import rollups_uri
from artimon.rawtable.schema import DAY_MS, FILE_SCHEMA, TableError, raw_uri
from artimon.rawtable.table_reader import OpenTables
from artimon.runtime import file_access as files
from artimon.runtime.zookeeper_client import close_client, zookeeper_client
from query_dsl.stores.history.answer_builder import build_answer, describe
from query_dsl.stores.history.file_pruning import PrunedFiles, RowFilter, prune
from query_dsl.stores.history.local_reader import LocalReader, Progress, no_progress
from query_dsl.stores.history.result import HistoryAnswer, ReadStats
from query_dsl.stores.history.sample_query import (
    NO_LIMIT,
    HistoryError,
    HistoryInterrupted,
    SampleQuery,
    parse_sample_query,
)
from query_dsl.stores.history.series_lookup import FoundSeries, find_series
from query_dsl.stores.history.task_pool import POLL_S
from query_dsl.stores.history.two_pass_read import TwoPassRead
from query_dsl.tree.query_errors import NothingSelected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Engine = Literal["auto", "local", "spark"]
LOCAL_BYTES = 256 * 1024 * 1024
"""`auto`: maximum bytes of files to read in this process; more goes through Spark, which takes seconds to start."""
CONNECT_TIMEOUT_S = 2.0
MAX_LISTED = 200
"""Maximum number of sources or fingerprints sent to Spark as a list that prunes row groups; more only as bounds."""
BINARY = "value binary"
"""Schema of frames that carry bytes."""
_MISSING_FILE = ("FILE_NOT_EXIST", "FileNotFoundException")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Settings of a Spark session that is made if there is none."""

    master: str = "local[2]"
    memory: str = "1g"


class History:
    """History on one HDFS. A context manager; threads may share it. Nothing is opened before the first query.

    `spark` is the session to use; by default the active one, else a new one that `close` stops. With a `zookeeper`
    (host:port) leases protect files while they are read; without it a read restarts if compaction removes a file."""

    def __init__(
        self,
        hdfs: str,
        zookeeper: str | None = None,
        spark: SparkSession | None = None,
        place: SparkSettings | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._hdfs, self._zookeeper, self._clock = hdfs, zookeeper, clock
        self._spark, self._place = spark, place or SparkSettings()
        self._own_session: tuple[SparkSession, str] | None = None
        self._lock = threading.Lock()
        self.opened = OpenTables()
        """Tables and data files that stay open between queries."""

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the session that was made here. Idempotent."""
        own, self._own_session = self._own_session, None
        if own is not None:
            own[0].stop()
            shutil.rmtree(own[1], ignore_errors=True)

    # --- samples

    def read(
        self,
        selector: str,
        start: object,
        end: object = "now",
        *,
        samples: int | None = None,
        series: int | None = None,
        engine: Engine = "auto",
        progress: Progress = no_progress,
        stop: threading.Event | None = None,
    ) -> HistoryAnswer:
        """Return every sample with time in (start, end] of every matching series.

        Times: ISO 8601, "now-1h", datetime, epoch ms. Both engines give the same answer; `auto` takes
        Spark for more than LOCAL_BYTES. Raises NothingSelected, TooMuchHistory beyond a limit, HistoryInterrupted once
        `stop` is set, HistoryError if HDFS or the tables cannot be read, QueryError for invalid arguments."""
        asked = parse_sample_query(selector, start, end, self._clock.now_ms(), samples, series)
        ended = stop or threading.Event()
        with self.lease_client() as zookeeper:
            found = find_series(self._hdfs, asked, self.opened)
            wanted = _row_filter(found, asked)
            uri = raw_uri(self._hdfs)

            def answer(table: ListedTable) -> HistoryAnswer:
                pruned = prune(table, wanted)
                if takes_spark(engine, pruned) and (engine == "spark" or uri.startswith("hdfs:")):
                    rows, touched = self._through_spark(uri, pruned, wanted, asked, progress, ended)
                    rows = build_answer(rows, found, wanted)
                else:
                    rows, touched = _read_locally(uri, pruned, found, wanted, asked, progress, ended)
                if ended.is_set():
                    raise HistoryInterrupted("reading the history was interrupted")
                return _answer(rows, found, touched)

            return self.opened.read(uri, answer, zookeeper)

    def batches(
        self,
        selector: str,
        start: object,
        end: object = "now",
        *,
        series: int | None = None,
        stop: threading.Event | None = None,
        described: bool = False,
    ) -> Iterator[Any]:
        """Yield the same samples as Arrow tables of RESULT_SCHEMA, without a limit of samples: one row group of one
        file is in memory at a time. Each table is sorted by series, source and time, but a series may come in several.
        `described`: with kind, unit and help of their series, as EXPORT_SCHEMA.

        Reads in this process. Raises as `read`; HistoryError if compaction removes a file meanwhile, as tables already
        yielded cannot be withdrawn."""
        asked = parse_sample_query(selector, start, end, self._clock.now_ms(), NO_LIMIT, series)
        uri = raw_uri(self._hdfs)
        with self.lease_client() as zookeeper:
            found = find_series(self._hdfs, asked, self.opened)
            wanted = _row_filter(found, asked)
            with self.opened.open_leased(uri, zookeeper) as table:
                pruned = prune(table, wanted)
                reader = LocalReader(uri, wanted, asked, stop or threading.Event())
                for rows in reader.stream(pruned.files):
                    answer = build_answer(rows, found, wanted)
                    yield describe(answer, found) if described else answer

    def described(self, selector: str, start: object, end: object = "now", *, series: int | None = None) -> Any:
        """Return what was announced of the matching series, a row for each source, sorted by text. Raises as `read`."""
        asked = parse_sample_query(selector, start, end, self._clock.now_ms(), NO_LIMIT, series)
        with self.lease_client():
            return find_series(self._hdfs, asked, self.opened).table

    def living(self, selector: str, start: object, end: object = "now", *, series: int | None = None) -> Any:
        """Return the rows of `described` that were announced in the time, exact to a day: announcements are repeated
        daily. Raises as `read`, and NothingSelected if no series was."""
        asked = parse_sample_query(selector, start, end, self._clock.now_ms())
        found = self.described(selector, start, end, series=series)
        first, last = (found.column(name).cast(pa.int64()).to_numpy() for name in ("first_seen", "last_seen"))
        rows = (first <= asked.until_ms * 1000) & (last > (asked.after_ms - DAY_MS) * 1000)
        if not rows.any():
            raise NothingSelected(f"none of the {len(found):,} series of {selector} was announced in this time")
        return found.filter(pa.array(rows))

    def frame(self, selector: str, start: object, end: object = "now", *, series: int | None = None) -> DataFrame:
        """Return the same samples as a Spark frame, without a limit of samples: columns series (text), name,
        labels (map), source (text), type, time, birth, future, integer, double, boolean, string.

        Lazy, but the list of files is fixed at the call. Raises as `read`."""
        asked = parse_sample_query(selector, start, end, self._clock.now_ms(), NO_LIMIT, series)
        with self.lease_client() as zookeeper:
            found = find_series(self._hdfs, asked, self.opened)
            wanted = _row_filter(found, asked)
            uri = raw_uri(self._hdfs)
            pruned = self.opened.read(uri, lambda table: prune(table, wanted), zookeeper)
        session = self.session()
        rows = _select_frame(session, uri, pruned, wanted)
        about = found.table.take(pa.array(wanted.order)).select(["text", "name", "labels", "source_name", "type"])
        about = about.append_column("pair", pa.array(np.arange(len(wanted))))
        told: Any = session.createDataFrame(about).withColumnsRenamed({"text": "series", "source_name": "source"})
        joined = rows.drop("source", "series").join(_broadcast(told), "pair").drop("pair")
        order = ["series", "name", "labels", "source", "type", "time", "birth", "future"]
        frame: DataFrame = joined.select(*order, *VALUE_COLUMNS)
        return frame

    def session(self) -> SparkSession:
        """Return the Spark session in use; make one if necessary."""
        from pyspark.sql import SparkSession

        active = self._spark or SparkSession.getActiveSession()
        if active is not None:
            return active
        with self._lock:
            if self._own_session is None:
                self._own_session = _make_session(self._place)
            return self._own_session[0]

    # --- engines

    def read_ahead(self) -> float:
        """See OpenTables, for the raw table and that of roll-ups."""
        return self.opened.read_ahead(raw_uri(self._hdfs), rollups_uri(self._hdfs))

    @property
    def hdfs(self) -> str:
        """URI of the HDFS folder."""
        return self._hdfs

    def in_tasks(
        self,
        work: Callable[[Iterator[Any]], Iterator[Any]],
        tasks: Sequence[bytes],
        stop: threading.Event,
        progress: Progress = no_progress,
    ) -> Iterator[bytes]:
        """Run `work` on each of `tasks` in Spark, with batches of one binary column in and out, and yield the results.
        Tasks run in waves of twice the default parallelism, to limit the results in memory. Raises as `read`."""
        session = self.session()
        context = session.sparkContext
        wave = max(2, 2 * context.defaultParallelism)
        for first in range(0, len(tasks), wave):
            given = [(bytearray(task),) for task in tasks[first : first + wave]]
            frame: Any = session.createDataFrame(context.parallelize(given, len(given)), BINARY)
            done = run_in_group(session, frame.mapInArrow(work, BINARY).toArrow, no_progress, stop)
            for column in done.columns:
                yield from (value.as_buffer() for value in column)
            progress((first + len(given)) / len(tasks), f"{first + len(given)} of {len(tasks)} Spark tasks")

    def _through_spark(
        self,
        uri: str,
        pruned: PrunedFiles,
        wanted: RowFilter,
        asked: SampleQuery,
        progress: Progress,
        stop: threading.Event,
    ) -> tuple[Any, ReadStats]:
        session = self.session()
        rows = _select_frame(session, uri, pruned, wanted)

        def collect() -> Any:
            if rows.count() > asked.samples:  # reads three columns only, and collects nothing beyond the limit
                raise asked.too_many_samples()
            return rows.toArrow()

        table = run_in_group(session, collect, progress, stop)
        paths = tuple(file.path for file in pruned.files)
        return table, ReadStats("spark", len(paths), pruned.of_files, pruned.size, pruned.of_bytes, paths)

    @contextmanager
    def lease_client(self, ask: bool = True) -> Iterator[KazooClient | None]:
        """Open a ZooKeeper client for leases, with `errors_converted`."""
        client = _leasing(self._zookeeper) if self._zookeeper else None
        try:
            with self.errors_converted(ask):
                yield client
        finally:
            if client is not None:
                close_client(client)

    @contextmanager
    def errors_converted(self, ask: bool = True) -> Iterator[None]:
        """Convert errors of the clients to HistoryError. `ask`: check first that the file system answers."""
        try:
            if ask:
                files.check_reachable(raw_uri(self._hdfs))
            yield
        except TableNotFoundError as error:
            raise HistoryError(
                f"no history at {self._hdfs} yet: the Spark application creates its tables ({first_line(error)})"
            ) from error
        except (DeltaError, TableError, OSError) as error:
            raise HistoryError(f"the history at {self._hdfs} cannot be read: {first_line(error)}") from error


def takes_spark(engine: Engine, pruned: PrunedFiles) -> bool:
    """Return True if these files are read through Spark."""
    return engine == "spark" or (engine == "auto" and pruned.size > LOCAL_BYTES)


def _leasing(zookeeper: str) -> KazooClient | None:
    """Connect to ZooKeeper; None if it does not answer: then reads are not protected by leases."""
    client = zookeeper_client(zookeeper)
    if client.start_async().wait(CONNECT_TIMEOUT_S):
        return client
    close_client(client)
    return None


def _row_filter(found: FoundSeries, asked: SampleQuery) -> RowFilter:
    source, series = (found.table.column(name).cast(pa.int64()).to_numpy() for name in ("source", "series"))
    return RowFilter(source, series, asked.after_ms, asked.until_ms)


def _read_locally(
    uri: str,
    pruned: PrunedFiles,
    found: FoundSeries,
    wanted: RowFilter,
    asked: SampleQuery,
    progress: Progress,
    stop: threading.Event,
) -> tuple[Any, ReadStats]:
    reader = LocalReader(uri, wanted, asked, stop)
    rows = TwoPassRead(reader, found, wanted, stop).table(pruned.files, progress)
    paths = tuple(file.path for file in pruned.files)
    return rows, ReadStats("local", len(paths), pruned.of_files, reader.fetched_bytes, pruned.of_bytes, paths)


def _answer(rows: Any, found: FoundSeries, touched: ReadStats) -> HistoryAnswer:
    notes = [
        f"engine {touched.engine}: {touched.files:,} of {touched.of_files:,} files,"
        f" {touched.bytes:,} of {touched.of_bytes:,} bytes"
    ]
    if found.ambiguous:
        notes.append(f"{len(found.ambiguous)} fingerprints with two texts are left out with their samples")
    return HistoryAnswer(rows, found.table, touched, tuple(notes))


# --- Spark


def _select_frame(session: SparkSession, uri: str, pruned: PrunedFiles, wanted: RowFilter) -> Any:
    """Select the wanted rows of these files as a frame of FILE_SCHEMA and `pair`."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(FILE_SCHEMA)
    root = f"s3a:{uri[3:]}" if uri.startswith("s3:") else uri  # the name of S3 in Hadoop
    if pruned.files:
        rows: Any = session.read.schema(schema).parquet(*(f"{root}/{file.path}" for file in pruned.files))
    else:
        rows = session.createDataFrame([], schema)
    rows = rows.where(f.col("time") > f.timestamp_micros(f.lit(wanted.after_us)))
    rows = rows.where(f.col("time") <= f.timestamp_micros(f.lit(wanted.until_us)))
    for name, values in (("source", wanted.source), ("series", wanted.series)):
        distinct = np.unique(values).tolist()
        if len(distinct) <= MAX_LISTED:
            rows = rows.where(f.col(name).isin(distinct))
        else:
            rows = rows.where(f.col(name).between(distinct[0], distinct[-1]))
    pairs = pa.table(
        {
            "source": pa.array(wanted.source.astype(np.int32)),
            "series": pa.array(wanted.series),
            "pair": pa.array(np.arange(len(wanted))),
        }
    )
    return rows.join(_broadcast(session.createDataFrame(pairs)), ["source", "series"])


def _broadcast(frame: Any) -> Any:
    from pyspark.sql import functions as f

    return f.broadcast(frame)


def run_in_group(session: SparkSession, call: Callable[[], T], progress: Progress, stop: threading.Event) -> T:
    """Return the result of `call`, run in a separate thread so that its jobs can be monitored and cancelled."""
    from pyspark import InheritableThread

    context, group = session.sparkContext, f"history-{uuid.uuid4().hex}"
    answer: Future[T] = Future()

    def run() -> None:
        try:
            context.setJobGroup(group, "history", interruptOnCancel=True)
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    InheritableThread(target=run, name=group, daemon=True).start()
    try:
        while not wait([answer], POLL_S).done:
            if stop.is_set():
                raise HistoryInterrupted("reading the history was interrupted")
            progress(*_advance(context, group))
    finally:
        if not answer.done():
            context.cancelJobGroup(group)
    error = answer.exception()
    if error is not None:
        raise _translate_error(error)
    return answer.result()


def _advance(context: Any, group: str) -> tuple[float, str]:
    """Progress of the jobs: completed tasks of all known tasks."""
    tracker = context.statusTracker()
    done = known = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info else ():
            told = tracker.getStageInfo(stage)
            if told is not None:
                done, known = done + told.numCompletedTasks, known + told.numTasks
    return done / (known or 1), f"{done} of {known} Spark tasks"


def _translate_error(error: BaseException) -> BaseException:
    """Convert an error of Spark: FileNotFoundError for a missing file, for `read_with_retry`; else HistoryError."""
    from pyspark.errors import PySparkException

    text = _cause_of(str(error))
    if any(mark in text for mark in _MISSING_FILE):
        return FileNotFoundError(text.splitlines()[0])
    if isinstance(error, PySparkException) or type(error).__module__.startswith("py4j"):
        return HistoryError(f"Spark failed: {text.splitlines()[0] if text else type(error).__name__}")
    return error


def _cause_of(text: str) -> str:
    """Return the text of an error of Spark; of an exception in a Python worker, its last line."""
    _, mark, after = text.rpartition("Traceback (most recent call last):")
    lines = [line for line in after.splitlines() if line and not line[0].isspace()]
    return lines[0] if mark and lines else text


def _make_session(place: SparkSettings) -> tuple[SparkSession, str]:
    """Make a session in this process and its temporary folder. Raises HistoryError if Spark does not start."""
    from pyspark.sql import SparkSession

    folder = tempfile.mkdtemp(prefix="artimon-history-")
    builder: Any = SparkSession.builder.master(place.master).appName("artimon-history")
    settings = {
        "spark.driver.memory": place.memory,
        "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -XX:-UsePerfData -Djava.io.tmpdir={folder}",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.shuffle.partitions": "4",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session: SparkSession = builder.getOrCreate()
    except Exception as error:  # a missing Java raises various types
        shutil.rmtree(folder, ignore_errors=True)
        raise HistoryError(
            f"Spark does not start ({first_line(error)}): is a full Java 17 or later on PATH or at JAVA_HOME?"
        ) from error
    session.sparkContext.pythonExec = sys.executable
    return session, folder
