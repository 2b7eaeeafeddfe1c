"""Commands for dead letters: messages that could not be stored, with reasons, and their replay."""

from __future__ import annotations

import json
import threading
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from artimon.cli.common import DataOption, HdfsOption, JsonOption, KafkaOption, Panel, locate_settings, print_error
from artimon.runtime.text import printable

if TYPE_CHECKING:
    from pipeline.spark.dead_letters import DeadLetterRecord, DeadLetters, ReplayOutcome, ReplayRequest

PANEL = Panel.OPERATE
app = typer.Typer()
letters_app = typer.Typer(no_args_is_help=True, help="Messages that could not be stored.")
app.add_typer(letters_app, name="deadletter")


@letters_app.command("list")
def list_letters(
    as_json: JsonOption = False,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Number of the newest to show.")] = 100,
    reason: Annotated[str, typer.Option(help="Show only letters whose reason contains this.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Include letters that are stored by now.")] = False,
    kafka: KafkaOption = None,
    hdfs: HdfsOption = None,
    data: DataOption = None,
) -> None:
    """List messages that could not be stored, newest last, with their state and reason."""
    raise typer.Exit(show(_opened(kafka, hdfs, data), as_json, limit, reason, everything, _stop()))


@letters_app.command("replay")
def replay_letters(
    letters: Annotated[list[str] | None, typer.Argument(metavar="PARTITION:OFFSET...", help="Which letters.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Replay all waiting letters.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done; send nothing.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Send even messages that are refused again: too old or undecodable.")
    ] = False,
    kafka: KafkaOption = None,
    hdfs: HdfsOption = None,
    data: DataOption = None,
) -> None:
    """Send messages that could not be stored once more, after the fault is fixed."""
    from pipeline.spark.dead_letters import LetterAddress, ReplayRequest

    if bool(letters) == everything:
        raise typer.BadParameter("name letters as PARTITION:OFFSET, or --all")
    try:
        wish = ReplayRequest(frozenset(map(LetterAddress.parse, letters or ())), force, dry_run)
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None
    raise typer.Exit(replay_and_report(_opened(kafka, hdfs, data), wish, _stop()))


def show(source: DeadLetters, as_json: bool, limit: int, reason: str, everything: bool, stop: threading.Event) -> int:
    """Print the newest `limit` letters; returns 0, 1 if they cannot be read, 130 if interrupted."""
    from pipeline.spark.dead_letters import DeadLetterError, LetterState

    newest: deque[DeadLetterRecord] = deque(maxlen=limit)
    matching = 0
    try:
        for letter, _ in source.read(stop):
            if reason in letter.reason and (everything or letter.state != LetterState.STORED):
                newest.append(letter)
                matching += 1
    except DeadLetterError as problem:
        print_error(f"artimon: {problem}")
        return 1
    if stop.is_set():
        print_error("artimon: interrupted; nothing is printed")
        return 130
    counts = {str(state): count for state, count in source.tally.states.items()}
    if as_json:
        document = {
            "letters": [letter_json(one) for one in newest],
            "counts": counts,
            "strangers": source.tally.foreign,
        }
        print(json.dumps(document))
    else:
        for one in newest:
            print(letter_line(one))
        _say_counts(counts, source.tally.foreign, matching - len(newest))
    return 0


def replay_and_report(source: DeadLetters, wish: ReplayRequest, stop: threading.Event) -> int:
    """Replay letters and print a line for each; returns 0 if none was refused or failed, 130 if interrupted."""
    from pipeline.spark.dead_letters import DeadLetterError, replay

    done: dict[str, int] = {}
    problem = ""
    try:
        for outcome in replay(source, wish, stop):
            print(outcome_line(outcome), flush=True)
            done[outcome.result] = done.get(outcome.result, 0) + 1
    except DeadLetterError as error:
        problem = str(error)
    print_error(", ".join(f"{count} {what}" for what, count in sorted(done.items())) or "nothing to replay")
    if stop.is_set():
        print_error("artimon: interrupted; run it again at any time, repeats are harmless")
        return 130
    if problem:
        print_error(f"artimon: {problem}")
    return 1 if problem or done.get("refused") or done.get("failed") else 0


def letter_json(letter: DeadLetterRecord) -> dict[str, Any]:
    """Return a letter as a JSON object."""
    header = letter.header
    return {
        "topic": letter.topic,
        "partition": letter.address.partition,
        "offset": letter.address.offset,
        "state": str(letter.state),
        "reason": letter.reason,
        "why": letter.objection,
        "buried_ms": letter.written_ms,
        "bytes": letter.size,
        "batch": str(header.id) if header else None,
        "source": header.source if header else None,
        "poll_ms": header.poll_ms if header else None,
        "samples": header.rows if header else None,
    }


def letter_line(letter: DeadLetterRecord) -> str:
    """Format a letter: address, state, time, content, reason, and the reason against a replay if it differs."""
    header = letter.header
    moment = datetime.fromtimestamp(letter.written_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    what = f"{header.rows} samples of {header.source}" if header else f"{letter.size} bytes"
    why = "" if not letter.objection or letter.objection == letter.reason else f"; now: {letter.objection}"
    return printable(f"{letter.address!s:>12}  {letter.state:10}  {moment}  {what}: {letter.reason}{why}")


def outcome_line(outcome: ReplayOutcome) -> str:
    """Format the outcome of one replayed letter."""
    at = f" at {outcome.position.partition}:{outcome.position.offset}" if outcome.position else ""
    return printable(f"{outcome.letter.address}  {outcome.result}{at}{': ' if outcome.detail else ''}{outcome.detail}")


def _say_counts(counts: dict[str, int], strangers: int, hidden: int) -> None:
    said = ", ".join(f"{count} {state}" for state, count in counts.items())
    print_error(f"{sum(counts.values())} letters: {said}" + (f"; {hidden} older ones are not shown" if hidden else ""))
    if strangers:
        print_error(f"{strangers} records in the topic are not dead letters of Artimon")


def _opened(kafka: str | None, hdfs: str | None, data: Path | None) -> DeadLetters:
    from pipeline.spark.dead_letters import DeadLetters

    place = locate_settings(data)
    return DeadLetters(kafka or place.kafka, hdfs or place.hdfs)


def _stop() -> threading.Event:
    """Return an event set by SIGINT and SIGTERM, at which a replay finishes its current letter."""
    from artimon.runtime.process_setup import install_signal_handlers

    return install_signal_handlers()
