"""Session of a notebook: one connection to the memory store, expressions that run on it, search and completion."""

from __future__ import annotations

import html
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from artimon import chart_widget, query_magic
from artimon import tab_completion as tab_key
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.labels import canonical
from artimon.model.select import SelectError, Series, Store
from artimon.progress_bar import ProgressBar
from artimon.runtime.settings import load
from artimon.runtime.text import printable
from artimon.stack.stack_location import locate_settings, zookeeper_of_store
from query_dsl import Expr, QueryError, parse_selector
from query_dsl.evaluation.evaluator import read_query
from query_dsl.evaluation.query_runner import QueryRunner
from query_dsl.language.expression_runner import clear_default_runner, set_default_runner
from query_dsl.promql.dsl_text import PromqlMatrix
from query_dsl.promql.promql_settings import PromqlSettings
from query_dsl.results.matrix import Matrix
from query_dsl.results.query_result import Certificate
from query_dsl.stores.auto_store import AutoStore
from query_dsl.stores.query_limits import Limits
from query_dsl.tree.times import parse_instant

if TYPE_CHECKING:
    import pandas as pd

    from query_dsl.language.completion import Completions
    from query_dsl.lint import Finding
    from query_dsl.promql import Query
    from query_dsl.stores.history.engine import History
    from query_dsl.stores.history.partition_map import HistorySelection
    from query_dsl.stores.history.result import HistoryAnswer
    from query_dsl.stores.history_store import HistoryStore
    from varstore.cluster.varstore_client import VarstoreClient

DEFAULT_LIMIT = 1_000
COMPLETIONS = 5_000
ENGINES = ("auto", "memory", "history")
CERTIFICATE_LIMITS = Limits(seconds=2.0)
"""Limits of the completeness that is shown with an answer."""
_SHOWN = 40


class Session(QueryRunner):
    """Queries to one store. A context manager; threads may share it.

    `fetch` and `parse` return expressions that run here; nothing runs before `collect`, `to_pandas` or `plot`."""

    def __init__(
        self,
        store: Store,
        where: str,
        clock: Clock = SYSTEM_CLOCK,
        open_history: Callable[[], History] | None = None,
        promql: PromqlSettings | None = None,
    ) -> None:
        """promql: settings of queries in PromQL; None: the defaults."""
        self._store: Store | None = store
        self._address, self._clock, self._open_history = where, clock, open_history
        self.promql_settings = promql or PromqlSettings()
        self.default_limits = Limits.of_machine()
        self._history: History | None = None
        self._history_store: HistoryStore | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; later queries raise QueryError. Idempotent."""
        store, self._store = self._store, None
        history, self._history, self._history_store = self._history, None, None
        clear_default_runner(self)
        if history is not None:
            history.close()
        close = getattr(store, "close", None)
        if close is not None:
            close()

    def _open_store(self) -> Store:
        if self._store is None:
            raise QueryError("this session is closed: open another one with artimon.connect()")
        return self._store

    # --- queries ---

    @property
    def now_ms(self) -> int:
        """Evaluation time of queries that name none, epoch ms."""
        return self._clock.now_ms()

    @contextmanager
    def _engine(self, engine: str) -> Iterator[Store]:
        """The store that answers one query, while a bar shows its progress."""
        with ProgressBar() as bar:
            yield self._store_of(engine, bar)

    def _store_of(self, engine: str, progress: ProgressBar | None = None) -> Store:
        """Return the store for `engine`. Raises QueryError."""
        memory = self._open_store()
        if engine not in ENGINES:
            raise QueryError(f"unknown engine {engine!r}: use one of {', '.join(ENGINES)}")
        if engine == "memory" or (engine == "auto" and self._open_history is None):
            return memory

        def past() -> HistoryStore:
            from query_dsl.stores.history_store import HistoryStore

            if self._history_store is None:
                self._history_store = HistoryStore(self.open_history(), memory.levels())
            return self._history_store.with_progress(progress or ProgressBar())

        return past() if engine == "history" else AutoStore(memory, past, self._clock)

    def query(self, query: str | Expr, at: object = None, *, engine: str = "auto", **options: Any) -> Matrix:
        """See QueryRunner. An answer from memory is shown with its completeness."""
        instant = self._at(at)
        found = super().query(query, instant, engine=engine, **options)
        if not isinstance(found, Matrix) or found.origin is None or found.origin.engine != "memory":
            return found
        return found.like(certificate=self._certificate(query, instant))

    def promql(
        self, query: str, at: object = None, *, start: object = None, engine: str = "auto", **options: Any
    ) -> PromqlMatrix:
        """See QueryRunner. An answer is shown with the completeness of what it read from memory."""
        instant = self._at(at)
        first = None if start is None else parse_instant(start, "start").resolve(self.now_ms)
        found = super().promql(query, instant, start=first, engine=engine, **options)
        if engine == "history":
            return found
        return found.like(certificate=self._certificate(query, instant, lang="promql", start=first))

    def _certificate(self, query: str | Expr, instant: int, **options: Any) -> Certificate:
        """Return the line about completeness, which is measured when it is shown."""

        def tell() -> str:
            try:
                return str(self.completeness(query, instant, engine="memory", limits=CERTIFICATE_LIMITS, **options))
            except (QueryError, SelectError):
                return ""  # the session was closed, or memory has moved on: the answer stays as it is

        return Certificate(tell)

    def chart(self, query: str | Expr | Matrix, at: object = None, **options: Any) -> Any:
        """Draw an answer: as an interactive chart in a notebook, with the extra `notebook`, else by matplotlib."""
        return chart_widget.show(query if isinstance(query, Matrix) else self.query(query, at, **options))

    def rule(
        self, query: str | Expr, name: str, threshold: str, *, hold: str = "5m", missing: str = "keep", **keys: Any
    ) -> str:
        """Return an alert rule as a file for the folder of rules, checked. `missing`: the policy for missing data;
        `keys`: more keys of the rule, such as `labels={"severity": "page"}`. Raises QueryError."""
        from artimon import saved_queries  # alert rules and dashboards are read only if a query is saved

        return saved_queries.rule_text(str(read_query(query)), name, threshold, hold, missing, keys)

    def panel(self, query: str | Expr, title: str, kind: str = "chart", **keys: Any) -> str:
        """Return a dashboard with one panel, checked: a file for the folder of dashboards, or a panel for another one.
        `keys`: more keys of the panel, such as `unit="bytes"`. Raises QueryError."""
        from artimon import saved_queries

        return saved_queries.panel_text(str(read_query(query)), title, kind, keys)

    # --- history ---

    @overload
    def history(
        self, selector: str, start: object, end: object = ..., *, lazy: Literal[False] = ..., **options: Any
    ) -> HistoryAnswer: ...
    @overload
    def history(
        self, selector: str, start: object, end: object = ..., *, lazy: Literal[True], series: int = ...
    ) -> HistorySelection: ...
    def history(
        self, selector: str, start: object, end: object = "now", *, lazy: bool = False, **options: Any
    ) -> HistoryAnswer | HistorySelection:
        """Read every sample with time in (start, end] of the series that match, from the raw table: also samples that
        left memory. Times as in `query`; `options` are those of History.read: samples, series, engine, progress, stop.
        With `lazy` nothing is read: the selection has `map_partitions` and `frame`, for any number of samples.

        A bar shows the progress unless you pass `progress`. Ctrl-C cancels the read with its Spark jobs and keeps the
        session usable. Raises QueryError and its subclasses HistoryError and TooMuchHistory. docs/history.md."""
        if lazy:
            from query_dsl.stores.history.partition_map import HistorySelection

            return HistorySelection(self.open_history(), selector, start, end, display=ProgressBar, **options)
        with ProgressBar() as bar:
            return self.open_history().read(selector, start, end, **{"progress": bar, **options})

    def open_history(self) -> History:
        """Return the history engine of this session, for `read` and for `frame` (a Spark DataFrame)."""
        self._open_store()
        if self._open_history is None:
            raise QueryError("this session has no history: open it with artimon.connect()")
        if self._history is None:
            self._history = self._open_history()
        return self._history

    def lint(self, query: str | Expr | Query, *, promql: bool = False) -> list[Finding]:
        """Return warnings about a query, in the order of its text: unknown names and labels, counters without a rate,
        operators whose series do not pair, … It is not evaluated. `promql`: the text is PromQL. Raises SelectError."""
        from query_dsl.lint import lint

        options = {"promql": promql, "similar_names": self.promql_settings.similar_names}
        return lint(query, self._open_store(), self.now_ms, **options)

    # --- finding ---

    def names(self, prefix: str = "", *, engine: str = "memory") -> list[str]:
        """Return the names of variables that begin with `prefix`, sorted. `engine` as in `query`: the history also
        knows names that are no longer in memory."""
        return [name for name in self._store_of(engine).names() if name.startswith(prefix)]

    def find(self, selector: str, limit: int = DEFAULT_LIMIT, *, engine: str = "memory") -> SeriesList:
        """Return the series that match the selector, at most `limit`, with or without current values. `engine` as in
        `query`: the history also knows series that are no longer in memory."""
        found = self._store_of(engine).find(parse_selector(selector).matchers, limit + 1)
        return SeriesList(found[:limit], more=len(found) > limit)

    def labels(self) -> list[str]:
        """Return the names of all labels, sorted."""
        return self._open_store().label_values(None)

    def label_values(self, label: str, limit: int = 10_000) -> list[str]:
        """Return the values of a label, sorted."""
        return self._open_store().label_values(label, limit)

    def complete(
        self, text: str, position: int | None = None, *, code: bool = False, sessions: Collection[str] = ()
    ) -> Completions:
        """Complete a query at `position` (None: at its end): names, labels, label values, functions. `code`,
        `sessions`: see query_dsl/language/completion.py."""
        from query_dsl.language.completion import complete

        return complete(text, position, self._open_store(), code=code, sessions=sessions)

    def __getitem__(self, selector: str) -> Expr:
        """Same as `fetch`; notebooks complete names in it: `session["shop.<tab>`."""
        return self.fetch(selector)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def _ipython_key_completions_(self) -> list[str]:
        """Return names for the tab key; none if the store fails, because a key press must not show an error."""
        try:
            return self.names()[:COMPLETIONS]
        except (QueryError, SelectError):
            return []

    def __repr__(self) -> str:
        return f"<artimon session: {self._address}{'' if self._store is not None else ', closed'}>"


class SeriesList(Sequence[Series]):
    """Series found by a search, in canonical order; `more` is True if the limit cut them."""

    def __init__(self, series: Sequence[Series], more: bool = False) -> None:
        self._series, self.more = tuple(series), more

    def __len__(self) -> int:
        return len(self._series)

    @overload
    def __getitem__(self, index: int) -> Series: ...
    @overload
    def __getitem__(self, index: slice) -> SeriesList: ...
    def __getitem__(self, index: int | slice) -> Series | SeriesList:
        if isinstance(index, slice):
            return SeriesList(self._series[index])
        return self._series[index]

    def to_pandas(self) -> pd.DataFrame:
        """Return a frame with name, type and kind of each series, and one column per label."""
        import pandas as pd

        rows = [
            {"name": one.name, "type": one.type.name, "kind": one.kind.name.lower(), **one.labels}
            for one in self._series
        ]
        return pd.DataFrame(rows, columns=None if rows else ["name", "type", "kind"])

    def _rows(self) -> list[tuple[str, str]]:
        return [
            (printable(canonical(one.name, one.labels)), f"{one.type.name.lower()} {one.kind.name.lower()}")
            for one in self._series[:_SHOWN]
        ]

    def _footer(self) -> str:
        rest = f", {_SHOWN} shown" if len(self) > _SHOWN else ""
        return f"{len(self)} series{' or more' if self.more else ''}{rest}"

    def __repr__(self) -> str:
        return "\n".join([*(f"{text}  {kind}" for text, kind in self._rows()), self._footer()])

    def _repr_html_(self) -> str:
        side = 'style="text-align: left"'
        rows = (
            f"<tr><td {side}>{html.escape(text)}</td><td>{html.escape(kind)}</td></tr>" for text, kind in self._rows()
        )
        head = f'<tr><th scope="col" {side}>series</th><th scope="col">type and kind</th></tr>'
        table = f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>" if self else ""
        return f"<div>{table}<p>{self._footer()}</p></div>"


def open_session(zookeeper: str | None = None, data: Path | str | None = None) -> Session:
    """See artimon.connect."""
    folder = Path(data) if data is not None else None
    where = zookeeper_of_store(zookeeper, folder)

    def open_history() -> History:
        from query_dsl.stores.history.engine import History

        return History(locate_settings(folder).hdfs, where)

    promql = PromqlSettings.from_environment(load())
    session = Session(_shard_client(where), f"ZooKeeper {where}", open_history=open_history, promql=promql)
    set_default_runner(session)
    tab_key.install(session)
    query_magic.install(session)
    return session


def _shard_client(zookeeper: str) -> VarstoreClient:
    """Connect to the shards found in ZooKeeper. Raises SelectError if the address is invalid."""
    from varstore.cluster.varstore_client import VarstoreClient

    logging.getLogger("kazoo").addHandler(logging.NullHandler())  # our errors report what matters of its log
    try:
        return VarstoreClient(zookeeper)
    except ValueError as problem:
        raise SelectError(f"invalid ZooKeeper address {zookeeper!r}: write host:port ({problem})") from None
