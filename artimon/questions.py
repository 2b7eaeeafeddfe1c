"""Output and exit codes of the commands that read: series, history, mails, checks of rule files."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from artimon.runtime.process import quiet

if TYPE_CHECKING:
    from artimon.model.select import Series


def mail(data: Path, *, count: int, as_json: bool, full: bool) -> int:
    """Print the newest mails of the stack on `data`, newest last."""
    from artimon.stack.mail_view import read_mails, show_mails
    from artimon.stack.mailbox import FOLDER

    mails = read_mails(data / FOLDER, count)
    if as_json:
        print(json.dumps([one.to_json(full=full) for one in mails], indent=1))
    elif mails:
        print(show_mails(mails, full=full))
    else:
        print(f"artimon: no mail is kept in {data / FOLDER}", file=sys.stderr)
    return 0


def check_rules(paths: Sequence[Path]) -> int:
    """Print every error in rule files as `file:line:column: text`; returns 1 if there is one."""
    from alerts.rules.rulebook import check_files

    try:
        problems = check_files(paths)
    except OSError as error:
        print(f"artimon: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"{len(paths)} {'files are' if len(paths) > 1 else 'file is'} valid")
    return 1 if problems else 0


def find(selector: str, look: Callable[[str], Sequence[Series]], *, as_json: bool) -> int:
    """Print the series that `look` finds for a selector, one canonical text a line; returns 1 if the selector is
    invalid or matches nothing."""
    from artimon.model.labels import canonical
    from artimon.model.select import SelectError
    from query_dsl import QueryError
    from query_dsl.results.render import printable

    quiet()
    try:
        found = look(selector)
    except (QueryError, SelectError) as problem:
        print(f"artimon: {problem}", file=sys.stderr)
        return 1
    for series in found:
        text = canonical(series.name, series.labels)
        text = text if as_json else printable(text)
        kind = f"{series.type.name.lower()} {series.kind.name.lower()}"
        print(json.dumps({"series": text, "kind": kind}, ensure_ascii=False) if as_json else f"{text}  {kind}")
    if not found:
        print(f"artimon: no series matches {selector}", file=sys.stderr)
    return 0 if found else 1


def history(
    selector: str,
    start: str,
    end: str,
    *,
    where: tuple[str, str],
    form: Literal["json", "csv", "text"],
    arrow: Path | None,
    limit: int,
    engine: Literal["auto", "local", "spark"],
) -> int:
    """Print samples of the raw table, and notes on standard error. Returns 0, 1 after an error, 130 if interrupted.
    `where` is (HDFS, ZooKeeper)."""
    from artimon.history_view import Advance, show_history
    from query_dsl import QueryError
    from query_dsl.stores.history.engine import History

    quiet()
    try:
        with History(*where) as opened, Advance(sys.stderr) as advance:
            answer = opened.read(selector, start, end, samples=limit, engine=engine, progress=advance)
    except QueryError as problem:
        print(f"artimon: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("artimon: interrupted; nothing is printed", file=sys.stderr)
        return 130
    try:
        show_history(answer, form, arrow)
    except OSError as problem:
        print(f"artimon: {arrow or 'standard output'}: {problem.strerror}", file=sys.stderr)
        return 1
    return 0


def history_stream(selector: str, start: str, end: str, *, where: tuple[str, str], arrow: Path) -> int:
    """Write samples of the raw table as an Arrow stream while they are read; exit codes as in `history`. An incomplete
    file is removed."""
    from artimon.history_view import write_batches
    from query_dsl import QueryError
    from query_dsl.stores.history.engine import History

    quiet()
    told = 1
    try:
        with History(*where) as opened:
            samples = write_batches(opened.batches(selector, start, end), arrow)
        print(f"artimon: {samples:,} samples", file=sys.stderr)
        return 0
    except QueryError as problem:
        print(f"artimon: {problem}", file=sys.stderr)
    except KeyboardInterrupt:
        print("artimon: interrupted; no new file is kept", file=sys.stderr)
        told = 130
    except OSError as problem:
        print(f"artimon: {arrow}: {problem.strerror}", file=sys.stderr)
    return told
