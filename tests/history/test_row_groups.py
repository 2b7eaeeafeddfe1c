"""Files of many row groups: threads read them in shares, in two passes, with the same answer."""

from __future__ import annotations

import random
import uuid

import pytest

from artimon.model.values import Value
from artimon.rawtable import parquet_reader
from pipeline.spark import raw_file as rows
from query_dsl.stores.history import shares
from query_dsl.stores.history import two_pass_read as gathering
from query_dsl.stores.history.engine import History
from query_dsl.stores.history.sample_query import TooMuchHistory
from tests.history.test_reading import told
from tests.history.world import HOUR_MS, START_MS, Given, HistoryWorld
from tests.series.world import block

pytestmark = [pytest.mark.stack, pytest.mark.slow]
END_MS = START_MS + 3 * HOUR_MS
TEXTS = [f'v{{n="{n:02}"}}' for n in range(24)]
VALUES: list[Value | None] = [2**53 + 1, 0.5, True, "naïve ☃", None]
OTHER = "other{}"


@pytest.fixture(scope="module")
def grouped(hdfs: str) -> HistoryWorld:
    """Two hours of 24 series of two sources, and of another name, in files of some twenty row groups of 40 rows; rows
    that came an hour late, between those of other files; two rows at one time."""
    history_world = HistoryWorld(f"{hdfs}/s{uuid.uuid4().hex[:10]}")
    history_world.announce([block("a/0", 0, 1, [*TEXTS[:16], OTHER]), block("b/0", 0, 1, TEXTS[8:])])
    owned = [("a/0", text) for text in [*TEXTS[:16], OTHER]] + [("b/0", text) for text in TEXTS[8:]]
    chance = random.Random(7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "ROW_GROUP", 40)
        for hour in range(2):
            begin = START_MS + hour * HOUR_MS
            given: list[Given] = [
                (source, text, begin + n * 100_000, VALUES[(at + n) % 5] if at % 3 else at + n)
                for at, (source, text) in enumerate(owned)
                for n in range(30)
                if text != TEXTS[3] or hour  # there is no sample of it in the first hour
            ]
            history_world.append(begin + HOUR_MS - 1, given)
        late: list[Given] = [
            (source, text, START_MS + chance.randrange(HOUR_MS // 100) * 100, chance.random())
            for source, text in chance.sample(owned, 9)
            for _ in range(3)
        ]
        history_world.append(START_MS + 2 * HOUR_MS, [*late, ("a/0", TEXTS[0], START_MS, 77)])
    return history_world


@pytest.fixture(params=["whole", "small shares", "nothing kept"])
def sized(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "whole":
        monkeypatch.setattr(parquet_reader, "WHOLE_BYTES", 0)
    if request.param == "small shares":
        monkeypatch.setattr(shares, "SHARE_ROWS", 100)
    if request.param == "nothing kept":
        monkeypatch.setattr(gathering, "KEPT_SHARE_BYTES", 0)
        monkeypatch.setattr(shares, "SHARE_BYTES", 1)  # larger than that is every row group: keys first, then values


@pytest.mark.usefixtures("sized")
@pytest.mark.parametrize(
    ("after", "until"), [(START_MS - 1, END_MS), (START_MS + 700_000, START_MS + HOUR_MS + 1_000_000)]
)
@pytest.mark.parametrize("selector", ["v", 'v{n="00"}', 'v{n=~"0[2-5]|2."}', "other"])
def test_equals_the_plain_list(grouped: HistoryWorld, selector: str, after: int, until: int) -> None:
    """Series over several files and row groups, late rows among them, sources that share a series."""
    fits = {"v": TEXTS, 'v{n="00"}': TEXTS[:1], 'v{n=~"0[2-5]|2."}': [*TEXTS[2:6], *TEXTS[20:]], "other": [OTHER]}
    answer = History(grouped.hdfs).read(selector, after, until, engine="local")
    assert told(answer) == grouped.expected(fits[selector], after, until)
    keys = [(one.series, one.source, one.time_ms) for one in answer.samples()]
    assert keys == sorted(keys)
    assert answer.touched.bytes > 0


@pytest.mark.usefixtures("sized")
def test_a_range_without_samples_keeps_its_series(grouped: HistoryWorld) -> None:
    """The series are known; files are pruned, or hold nothing of them."""
    for after, until in ((END_MS, END_MS + HOUR_MS), (START_MS + 1, START_MS + 2)):
        answer = History(grouped.hdfs).read('v{n="03"}', after, until, engine="local")
        assert (len(answer), len(answer.series)) == (0, 1)


@pytest.mark.usefixtures("sized")
def test_the_limit_is_exact_over_all_shares(grouped: HistoryWorld) -> None:
    count = len(grouped.expected(TEXTS, START_MS - 1, END_MS))
    history = History(grouped.hdfs)
    assert len(history.read("v", START_MS - 1, END_MS, samples=count, engine="local")) == count
    with pytest.raises(TooMuchHistory):
        history.read("v", START_MS - 1, END_MS, samples=count - 1, engine="local")


@pytest.mark.usefixtures("sized")
def test_batches_are_row_groups_still(grouped: HistoryWorld) -> None:
    batches = list(History(grouped.hdfs).batches("v", START_MS - 1, END_MS))
    assert max(len(batch) for batch in batches) <= 40
    assert sum(len(batch) for batch in batches) == len(grouped.expected(TEXTS, START_MS - 1, END_MS))


def test_progress_passes_through_both_halves(grouped: HistoryWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "SHARE_ROWS", 100)
    seen: list[float] = []
    History(grouped.hdfs).read("v", START_MS - 1, END_MS, engine="local", progress=lambda done, _: seen.append(done))
    assert seen == sorted(seen)
    assert seen[-1] == 1
    assert any(0 < done < 0.5 for done in seen)
    assert any(0.5 < done < 1 for done in seen)


def test_only_needed_row_groups_are_fetched(grouped: HistoryWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_reader, "WHOLE_BYTES", 0)
    one = History(grouped.hdfs).read(OTHER[:-2], START_MS - 1, END_MS, engine="local")
    assert len(one) == len(grouped.expected([OTHER], START_MS - 1, END_MS))
    assert one.touched.bytes < one.touched.of_bytes / 4
