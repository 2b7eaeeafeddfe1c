"""Other labels for the past: exactly the selected samples get them, in samples, roll-ups and series."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artimon.cli.history_deletion import select
from artimon.cli.history_relabel import SelectedRelabel, read_rules, resume
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.labels import canonical, parse_canonical
from artimon.rawtable.commit import CompactionLog
from artimon.rawtable.schema import TableError
from artimon.runtime import file_access as files
from artimon.runtime.config_file import ConfigFileError
from pipeline.history.deletion import prove_deletion
from pipeline.history.series_moves import RelabelError, moves_uri, read_moves
from query_dsl import evaluate, parse
from query_dsl.stores.history.engine import History
from query_dsl.stores.history.result import Sample
from query_dsl.stores.history.sample_query import HistoryError
from query_dsl.stores.history_store import HistoryStore
from query_dsl.tree.query_errors import NothingSelected
from tests.compaction.later import Later
from tests.transfer.importing import START_MS, samples
from tests.transfer.relabels import DROP_HOST, PREFIX, RENAME
from tests.transfer.rows import Row
from tests.transfer.test_commands import command
from tests.transfer.test_deletion import DAY_MS, MIDNIGHT_MS, ROOT, compact, counts, days_of_hosts, store

OF_NAME: dict[str, st.SearchStrategy[Any]] = {
    "room.temp": st.floats(),
    "req_total": st.integers(-(2**63), 2**63 - 1),
    "door": st.booleans(),
    "state": st.text(max_size=8),
}
ROWS = st.lists(
    st.sampled_from(sorted(OF_NAME)).flatmap(
        lambda name: st.tuples(
            st.sampled_from(["plc/a", "plc/b"]),
            st.just(name),
            st.dictionaries(st.sampled_from(["host", "le"]), st.sampled_from(["1", "2", "é"]), max_size=2),
            st.integers(START_MS - 2 * DAY_MS, START_MS),
            st.integers(1, START_MS),
            OF_NAME[name],
        )
    ),
    min_size=1,
    max_size=30,
)
Labels = dict[str, str]
RULES: list[tuple[str, Callable[[Labels], Labels]]] = [
    (RENAME, lambda labels: {"node" if key == "host" else key: value for key, value in labels.items()}),
    (PREFIX, lambda labels: {key: f"dc1-{value}" if key == "host" else value for key, value in labels.items()}),
    (DROP_HOST, lambda labels: {key: value for key, value in labels.items() if key != "host"}),
]
ALWAYS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def rules_file(folder: Path, text: str) -> Path:
    file = folder / f"rules-{uuid.uuid4().hex}.yaml"
    file.write_text(text)
    return file


def chosen(hdfs: str, folder: Path, rules: str, selector: str, after: int, until: int, **more: Any) -> SelectedRelabel:
    found = read_rules(rules_file(folder, rules))
    return SelectedRelabel(hdfs, selector, after, until, found, folder / "rows", **more)


def relabel(hdfs: str, folder: Path, rules: str, selector: str, after: int, until: int) -> tuple[int, int]:
    """Version and number of samples of a relabel."""
    one = chosen(hdfs, folder, rules, selector, after, until)
    done = one.confirm(one.plan()[1])
    return done.version, done.samples


def order_of(one: Sample) -> tuple[Any, ...]:
    return one.series, one.source, one.time_ms, repr(one)


def told(found: list[Sample]) -> list[str]:
    return [repr(one) for one in sorted(found, key=order_of)]


@pytest.mark.parametrize(("rules", "renamed"), RULES, ids=["rename", "prefix", "merge"])
@given(rows=ROWS, cut=st.tuples(st.integers(0, 29), st.integers(0, 29)), compacted=st.booleans())
@settings(max_examples=6, deadline=None, suppress_health_check=ALWAYS)
def test_exactly_the_selected_samples_get_other_labels(
    hdfs: str,
    tmp_path: Path,
    rules: str,
    renamed: Callable[[Labels], Labels],
    rows: list[Row],
    cut: tuple[int, int],
    compacted: bool,
) -> None:
    place = f"{hdfs}/{uuid.uuid4().hex}"
    store(place, tmp_path, rows)
    if compacted:
        compact(place, tmp_path)
    times = sorted(rows[at % len(rows)][3] for at in cut)
    after, until = times[0] - 1, times[1]
    wanted = rows[cut[0] % len(rows)][1]

    def moved(one: Sample) -> Sample:
        name, labels = parse_canonical(one.series)
        if name != wanted or not after < one.time_ms <= until:
            return one
        return one._replace(series=canonical(name, renamed(labels)))

    before = samples(place)
    expected = [moved(one) for one in before]
    changed = sum(one != other for one, other in zip(before, expected, strict=True))
    if not any("host" in parse_canonical(one.series)[1] for one in before if one.series.startswith(f"{wanted}{{")):
        with pytest.raises(NothingSelected, match="the rules change no series"):
            chosen(place, tmp_path, rules, wanted, after, until)
        return
    _, count = relabel(place, tmp_path, rules, wanted, after, until)
    assert count == changed
    assert told(samples(place)) == told(expected)
    compact(place, tmp_path)
    assert told(samples(place)) == told(expected)


def test_roll_ups_follow_and_series_become_one(hdfs: str, tmp_path: Path) -> None:
    store(hdfs, tmp_path, days_of_hosts())
    compact(hdfs, tmp_path)
    one = chosen(hdfs, tmp_path, DROP_HOST, 'load{host=~"h0|h1"}', MIDNIGHT_MS, MIDNIGHT_MS + 2 * DAY_MS)
    assert one.merged == 2
    done = one.confirm(one.plan()[1])
    assert done.samples == 2 * 2 * 24
    for _ in range(2):
        texts = {name: values for name, values in by_days(hdfs).items() if any(values)}
        assert texts == {
            "load": [48, 48, 0],
            'load{host="h0"}': [0, 0, 24],
            'load{host="h1"}': [0, 0, 24],
            'load{host="h2"}': [24, 24, 24],
        }
        compact(hdfs, tmp_path)


def by_days(hdfs: str, start_ms: int = MIDNIGHT_MS, days: int = 3) -> dict[str, list[Any]]:
    """Counts of samples of each series and day."""
    text = f"fetch('load').bucketize('count', '1d').between({start_ms}, {start_ms + days * DAY_MS})"
    with History(hdfs) as history:
        found = evaluate(parse(text), HistoryStore(history, engine="local"), SYSTEM_CLOCK.now_ms())
    return {str(series): [value or 0 for value in found.tolist(row)] for row, series in enumerate(found.series)}


def test_roll_ups_of_expired_samples_get_the_labels(hdfs: str, tmp_path: Path) -> None:
    """Whole days only: a bucket has the labels of all its samples."""
    store(hdfs, tmp_path, days_of_hosts())
    compact(hdfs, tmp_path)
    raw = CompactionLog(hdfs)
    raw.refresh()
    raw.expire(raw.live(), {})
    selector = 'load{host="h0"}'
    with pytest.raises(RelabelError, match="begin and end at midnight"):
        chosen(hdfs, tmp_path, PREFIX, selector, MIDNIGHT_MS, MIDNIGHT_MS + DAY_MS + 3_600_000).plan()
    version, count = relabel(hdfs, tmp_path, PREFIX, selector, MIDNIGHT_MS, MIDNIGHT_MS + 2 * DAY_MS)
    assert count == 0
    assert counts(hdfs, "1d") == {"h0": [0, 0, 24], "dc1-h0": [24, 24, 0], "h1": [24] * 3, "h2": [24] * 3}
    assert counts(hdfs, "1h")["dc1-h0"] == [1] * 48 + [0] * 24
    compact(hdfs, tmp_path, clock=Later())
    assert not prove_deletion(hdfs, version, select).remaining


def test_samples_of_equal_time_all_stay(hdfs: str, tmp_path: Path) -> None:
    rows: list[Row] = [("plc/a", "load", {"host": f"h{n}"}, MIDNIGHT_MS + 1, 1, n) for n in range(3)]
    store(hdfs, tmp_path, rows)
    relabel(hdfs, tmp_path, DROP_HOST, "load", 0, MIDNIGHT_MS + 1)
    assert sorted((one.series, one.time_ms, one.value) for one in samples(hdfs)) == [
        ("load{}", MIDNIGHT_MS + 1, value) for value in range(3)
    ]
    assert by_days(hdfs)["load"] == [3, 0, 0]


def test_what_cannot_be_changed_is_refused(hdfs: str, tmp_path: Path) -> None:
    store(hdfs, tmp_path, [*days_of_hosts(1), ("plc/a", "load", {}, MIDNIGHT_MS + 1, 1, 0.5)])
    end = MIDNIGHT_MS + DAY_MS

    def refused(rules: str, told_text: str, selector: str = 'load{host!=""}') -> None:
        before = samples(hdfs)
        with pytest.raises(RelabelError, match=told_text):
            chosen(hdfs, tmp_path, rules, selector, 0, end)
        assert samples(hdfs) == before

    refused(DROP_HOST, r"samples of several types, such as load \{\} \(double, integer\)")
    refused("relabel: [{action: drop, source_labels: [host], regex: h1}]", "drop 1 series, such as load{host=")
    refused("relabel: [{target_label: __name__, replacement: 0}]", "invalid series of load")
    chain = "relabel: [{source_labels: [host], regex: 'h([01])', target_label: host, replacement: 'h${1}0'}]"
    store(hdfs, tmp_path, [("plc/a", "load", {"host": "h00"}, MIDNIGHT_MS + 1, 1, 5)])
    store(hdfs, tmp_path, [("plc/a", "load", {"host": "h000"}, MIDNIGHT_MS + 1, 1, 5)])
    longer = chain.replace("h([01])", "h(0+|1)")
    refused(longer, "get other labels themselves")
    with pytest.raises(ConfigFileError, match="unknown action"):
        read_rules(rules_file(tmp_path, "relabel: [{action: nonsense}]"))
    with pytest.raises(NothingSelected, match="the rules change no series"):
        chosen(hdfs, tmp_path, "relabel: [{source_labels: [x], target_label: x}]", "load", 0, end)


@pytest.mark.parametrize(
    ("point", "nth"),
    [
        ("replaced", 2),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in (("noted", 1), ("announced", 1), ("rewritten", 1), ("replaced", 1), ("recorded", 1))
        ),
    ],
)
def test_killed_and_confirmed_again_is_complete(hdfs: str, tmp_path: Path, point: str, nth: int) -> None:
    """The rules would give other labels to series that have them already: the second run goes on from the record."""
    store(hdfs, tmp_path, days_of_hosts())
    compact(hdfs, tmp_path)
    end = MIDNIGHT_MS + 9 * DAY_MS
    rules = rules_file(tmp_path, PREFIX)
    words = [hdfs, "load", "0", str(end), str(rules), str(tmp_path / "rows"), point, str(nth)]
    command_line = [sys.executable, "-m", "tests.transfer.relabels", *words]
    done = subprocess.run(command_line, cwd=ROOT, capture_output=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-3000:]
    token = re.findall(r"^\d+-\d+-\d+-\w+$", done.stdout.decode(), re.M)[0]
    dry = ["relabel", "load", "--rules", str(rules), "--from", "1970-01-01T00:00:00Z", "--confirm", token]
    again = command(hdfs, tmp_path, *dry)
    assert again.exit_code == 0, again.stderr
    assert {one.series for one in samples(hdfs)} == {f'load{{host="dc1-h{n}"}}' for n in range(3)}
    assert len(samples(hdfs)) == 3 * 72
    assert read_moves(hdfs, token.rpartition("-")[2]) is None
    compact(hdfs, tmp_path)
    assert counts(hdfs, "1d") == {f"dc1-h{n}": [24, 24, 24] for n in range(3)}


def test_the_command(hdfs: str, tmp_path: Path) -> None:
    store(hdfs, tmp_path, days_of_hosts())
    rules = rules_file(tmp_path, RENAME)
    words = ["relabel", 'load{host="h1"}', "--rules", str(rules), "--from", "1970-01-01T00:00:00Z"]
    dry = command(hdfs, tmp_path, *words)
    assert dry.exit_code == 0, dry.stderr
    assert "would give other labels to 72 samples of 1 series" in dry.stdout
    assert '  load{host="h1"} -> load{node="h1"}' in dry.stdout
    assert len(samples(hdfs, 'load{host="h1"}')) == 72
    token = re.findall(r"--confirm (\S+)", dry.stdout)[0]
    store(hdfs, tmp_path, [("plc/a", "load", {"host": "h1"}, MIDNIGHT_MS + 77, 1, 5)])
    stale = command(hdfs, tmp_path, *words, "--confirm", token)
    assert (stale.exit_code, "it has 73 samples now: nothing is changed" in stale.stderr) == (1, True)
    token = re.findall(r"--confirm (\S+)", command(hdfs, tmp_path, *words).stdout)[0]
    done = command(hdfs, tmp_path, *words, "--confirm", token)
    assert "gave other labels to 73 samples" in done.stdout
    assert (tmp_path / "audit.log").read_text().count("history.relabel") == 3
    version = re.findall(r"--verify (\d+)", done.stdout)[0]
    assert command(hdfs, tmp_path, "relabel", "--verify", version).exit_code == 1
    compact(hdfs, tmp_path, clock=Later())
    proof = prove_deletion(hdfs, int(version), select)
    assert {uri.split("/artimon/")[1].split("/")[0] for uri in proof.remaining} <= {"series"}
    with pytest.raises(NothingSelected):
        samples(hdfs, 'load{host="h1"}')
    assert command(hdfs, tmp_path, "relabel", "load").exit_code == 2
    listed = command(hdfs, tmp_path, "series", "load", "--json")
    assert sorted(re.findall(r'"series": "(.*?)", "source"', listed.stdout)) == [
        *(rf"load{{host=\"h{n}\"}}" for n in (0, 2)),
        r"load{node=\"h1\"}",
    ]


def test_a_token_of_another_selection_changes_nothing(hdfs: str, tmp_path: Path) -> None:
    store(hdfs, tmp_path, days_of_hosts(1))
    end = MIDNIGHT_MS + DAY_MS
    token = chosen(hdfs, tmp_path, PREFIX, "load", 0, end).plan()[1]
    assert resume(hdfs, token, tmp_path / "rows") is None
    with pytest.raises(HistoryError, match="another one than in the dry run"):
        chosen(hdfs, tmp_path, RENAME, "load", 0, end).confirm(token)
    assert {one.series for one in samples(hdfs)} == {f'load{{host="h{n}"}}' for n in range(3)}


@pytest.mark.parametrize("data", [b"", b"PAR1junk", b"PAR1PAR1"])
def test_a_record_that_cannot_be_read_changes_nothing(hdfs: str, tmp_path: Path, data: bytes) -> None:
    store(hdfs, tmp_path, days_of_hosts(1))
    token = chosen(hdfs, tmp_path, PREFIX, "load", 0, MIDNIGHT_MS + DAY_MS).plan()[1]
    files.write_file(moves_uri(hdfs, token.code), data)
    with pytest.raises(TableError, match="cannot be read"):
        resume(hdfs, token, tmp_path / "rows")
    assert {one.series for one in samples(hdfs)} == {f'load{{host="h{n}"}}' for n in range(3)}
