"""The proof of the fault tests itself: what it takes for equal, and that it sees what it must see."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from artimon.model.batch import BatchId, Samples
from artimon.model.batch_codec import encode_samples
from artimon.model.sample_columns import decode_columns
from pipeline.compaction.row_digest import RowDigest
from pipeline.spark import raw_file as rows
from tests.faults.batches import Source, worth
from tests.faults.ledger import Ledger, LedgerWriter, Noted, read_ledgers
from tests.faults.stored import by_source, differences

AT = 1_795_000_000_000


def stored(*samples: Samples) -> dict[int, RowDigest]:
    """Return the rows of these batches in a file of the table: as source 7, and each batch again as source 9."""
    parts = []
    for source in (7, 9):
        for one in samples:
            batch = encode_samples(BatchId("a", 1, 0, 0), "s", bytes(16), 0, AT, "default", one)
            parts.append(rows.SourceBatch(source, AT, decode_columns(batch.header, batch.data)))
    table = rows.sorted_table(parts).combine_chunks()
    return by_source(pa.record_batch([column.chunk(0) for column in table.columns], schema=table.schema))


@pytest.mark.parametrize("mixed", [False, True])
def test_the_table_gives_back_what_the_ledger_notes(mixed: bool) -> None:
    source = Source("a/b/0", 500, mixed)
    batches = [source.poll(AT + n).samples for n in range(9)]
    expected = RowDigest()
    for one in batches:
        expected = expected.plus(worth(one))
    assert expected.rows == 4_500
    assert stored(*batches) == {7: expected, 9: expected}


def test_lost_twice_and_changed_rows_are_seen() -> None:
    source = Source("a/b/0", 500, True)
    one, two = source.poll(AT).samples, source.poll(AT + 1).samples
    right = {"a": worth(one).plus(worth(two))}
    twice = {"a": right["a"].plus(worth(two))}
    two.cell[0] += 1
    changed = {"a": worth(one).plus(worth(two))}
    assert differences(right, dict(right)) == []
    assert ["lost" in line for line in differences(right, {"a": worth(one)})] == [True]
    assert ["too many" in line for line in differences(right, twice)] == [True]
    assert ["other rows" in line for line in differences(right, changed)] == [True]
    assert len(differences(right, {**right, "b": worth(one)})) == 1
    assert len(differences({**right, "b": worth(one)}, right)) == 1


def test_batches_of_a_source_never_share_a_time() -> None:
    source = Source("a/b/0", 3, False)
    times = [int(source.poll(AT).samples.time_ms[0]) for _ in range(100)]
    assert len(set(times)) == 100
    assert max(times) < AT + 100


def test_a_ledger_knows_what_a_kill_left_open(tmp_path: Path) -> None:
    writer = LedgerWriter(tmp_path / "x.ledger", "1-1")
    done = writer.begin(Noted("a", AT, RowDigest(3, 4, 5)))
    writer.begin(Noted("b", AT, RowDigest(1, 1, 1)))
    writer.done(done)
    again = LedgerWriter(tmp_path / "x.ledger", "2-2")
    again.done(again.begin(Noted("a", AT + 1, RowDigest(1, 2**64 - 1, 1))))
    with (tmp_path / "x.ledger").open("a") as file:
        file.write('["2-2", 2, "c"')
    ledger = read_ledgers(tmp_path, Ledger())
    assert ledger.accepted == {"a": RowDigest(4, 3, 4)}
    assert [noted.source for noted in ledger.unknown] == ["b"]
    assert ledger.rows == 4
