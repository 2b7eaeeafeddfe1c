"""Text output of `artimon status` and `artimon doctor`: aligned tables on standard output."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from artimon.stack.doctor import Check, CheckResult
from artimon.stack.status import Hop, PartStatus, StackStatus

_MARKS = {
    CheckResult.GOOD: ("ok  ", "green"),
    CheckResult.WARNING: ("warn", "yellow"),
    CheckResult.FAILED: ("FAIL", "red"),
}
_WIDTH_OFF_TTY = 160


def _console() -> Console:
    console = Console(highlight=False)  # rich itself honours NO_COLOR and prints no colour off a terminal
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH_OFF_TTY)


def show(status: StackStatus) -> None:
    """Print parts, hops, problems, warnings and one line of summary."""
    console = _console()
    console.print(_parts(status.parts))
    if status.hops:
        console.print(_hops(status.hops))
    for problem in status.problems:
        console.print(Text(f"! {problem}", style="red"))
    for warning in status.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"))
    console.print(f"{_verdict(status)}; {len(status.parts)} parts, {status.rss_mb} MiB resident, data in {status.data}")


def _verdict(status: StackStatus) -> str:
    counts = [_counted(status.problems, "problem"), _counted(status.warnings, "warning")]
    return ", ".join(["healthy" if status.healthy else "NOT healthy", *filter(None, counts)])


def _counted(texts: list[str], word: str) -> str:
    return f"{len(texts)} {word}{'s' if len(texts) > 1 else ''}" if texts else ""


def show_check(check: Check) -> None:
    """Print one line, and a second one with the fix if there is one."""
    console = _console()
    mark, style = _MARKS[check.mark]
    console.print(Text.assemble((mark, style), f"  {check.name:<16} {check.detail}"))
    if check.fix:
        console.print(Text(f"      fix: {check.fix}"))


def table_of(columns: list[str], rows: list[list[str]]) -> None:
    """Print aligned columns on standard output."""
    table = _table(*((name, False) for name in columns))
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    _console().print(table)


def _table(*columns: tuple[str, bool]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name, right in columns:
        table.add_column(name, justify="right" if right else "left", no_wrap=right)
    return table


def _parts(parts: list[PartStatus]) -> Table:
    table = _table(
        ("part", False),
        ("state", False),
        ("pid", True),
        ("restarts", True),
        ("MiB", True),
        ("limit", True),
        ("up s", True),
    )
    table.add_column("ports")
    for part in parts:
        ports = " ".join(f"{name.rpartition('.')[2]}={port}" for name, port in part.ports.items())
        state = Text(part.state, style="green" if part.healthy else "red")
        figures = (part.pid or "-", part.restarts, part.rss_mb, part.memory_mb, f"{part.uptime_s:.0f}")
        table.add_row(part.name, state, *map(str, figures), ports)
    return table


def _hops(hops: list[Hop]) -> Table:
    table = _table(("hop", False), ("count", True), ("", False), ("lag", True), ("", False))
    for hop in hops:
        count = "?" if hop.count is None else f"{hop.count:,}"
        lag = "-" if hop.lag_ms is None else f"{hop.lag_ms / 1000:.1f} s"
        table.add_row(Text(hop.name, style="" if hop.healthy else "red"), count, hop.unit, lag, hop.detail)
    return table
