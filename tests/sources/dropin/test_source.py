"""From a program's variables through bookkeeper's writer and a whole source to the log: equal values, exactly once."""

from __future__ import annotations

import asyncio
import os
import random
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.labels import canonical
from artimon.model.values import Value
from bookkeeper import Bookkeeper, dropin
from sources.dropin.file_parser import LineReader
from sources.dropin.folder_files import FileLimits, OpenFile
from tests.seeds import fixed_and_drawn
from tests.sources.dropin.world import World
from tests.sources.helpers import HOST, KeepingSink, running
from tests.waiting import until

NOWHERE = "127.0.0.1:1"
AGENT = f"agent/{HOST}/agent1"
SOURCE = f"file/{HOST}/nightly"


def values_of(sink: KeepingSink, source: str) -> dict[str, Value | None]:
    return {text: value for text, _, _, value in sink.samples(source)}


def test_what_a_program_writes_is_what_the_log_has_exactly_once(tmp_path: Path) -> None:
    """Over five periods and a restart; then the program ends, its file goes, its series end."""
    folder = tmp_path / "dropin"

    async def run() -> None:
        sink, book = KeepingSink(), Bookkeeper(online=False)
        written: dict[str, list[Value]] = {"orders": [], "load": []}
        async with running(NOWHERE, tmp_path / "data", sink, dropin=folder) as source:
            await until(lambda: source.figures()["problems"], "the start")
            folder.mkdir()
            with dropin.Writer("nightly", folder, book=book) as writer:
                for i in range(5):
                    written["orders"].append(book.add_to_integer_var("orders", {"route": '/"x"\\,{y}'}, i + 1))
                    book.set_double_var("load", {}, i / 3)
                    written["load"].append(i / 3)
                    book.set_boolean_var("up", {}, i % 2 == 0)
                    book.set_string_var("state", {}, 'a "b"\n\\ ü')
                    writer.write()
                    count = (i + 1) * 4
                    await until(lambda n=count: len(sink.samples(SOURCE)) >= n, f"poll {i}")  # type: ignore[misc]
            age = f'artimon.dropin.age.ms{{file="nightly.artimon",host="{HOST}"}}'
            await until(lambda: age in values_of(sink, AGENT), "the age of the file")
        assert isinstance(values_of(sink, AGENT)[age], int)
        async with running(NOWHERE, tmp_path / "data", sink, dropin=folder) as source:
            polls = len([p for p in sink.accepted if p.source == AGENT])
            await until(lambda: len([p for p in sink.accepted if p.source == AGENT]) > polls + 2, "more polls")
            (folder / "nightly.artimon").unlink()
            await until(lambda: values_of(sink, SOURCE) and None in values_of(sink, SOURCE).values(), "the end")
        samples = [row for row in sink.samples(SOURCE) if row[3] is not None]
        assert max(Counter((text, time) for text, time, _, _ in samples).values()) == 1
        labels = {"route": '/"x"\\,{y}', "context": "nightly", "host": HOST}
        orders = [value for text, _, _, value in samples if text == canonical("orders", labels)]
        assert orders == [1, 3, 6, 10, 15, 15], "the last one at the end of the block"
        assert [v for t, _, _, v in samples if t.startswith("load{")] == [*written["load"], written["load"][-1]]
        assert values_of(sink, SOURCE) == dict.fromkeys(values_of(sink, SOURCE)), "all of them ended"
        assert {v for t, _, _, v in samples if t.startswith("state{")} == {'a "b"\n\\ ü'}
        assert [v for t, _, _, v in samples if t.startswith("up{")][-2:] == [True, True]
        assert len({birth for _, _, birth, _ in samples}) == 1

    asyncio.run(run())


def test_figures_name_a_bad_line_by_file_and_line(tmp_path: Path) -> None:
    """`artimon status` shows these figures."""
    path = tmp_path / "a.artimon"

    async def run() -> None:
        sink = KeepingSink()
        path.write_text(f"{SYSTEM_CLOCK.now_ms()} good 1\nthis is bad\n")
        async with running(NOWHERE, tmp_path / "data", sink, dropin=tmp_path) as source:
            await until(lambda: values_of(sink, f"file/{HOST}/a"), "the good line")
            (problem,) = [text for text in source.figures()["problems"] if "a.artimon" in text]
            assert problem == f"{path}:2: begins with 'this is bad': begin with the time, milliseconds since 1970"
            assert source.figures()["refused"] == {"bad line": 1}

    asyncio.run(run())


def test_a_shell_script_is_all_it_takes(tmp_path: Path) -> None:
    """This is the example of docs/sources.md."""
    script = 'echo "$(date +%s%3N) backup.bytes{volume=/home} 123" > backup.tmp && mv backup.tmp backup.artimon'

    async def run() -> None:
        sink = KeepingSink()
        subprocess.run(["sh", "-c", script], cwd=tmp_path, check=True)
        async with running(NOWHERE, tmp_path / "data", sink, dropin=tmp_path):
            await until(lambda: values_of(sink, f"file/{HOST}/backup"), "the sample")
        (text,) = values_of(sink, f"file/{HOST}/backup")
        assert text == f'backup.bytes{{context="backup",host="{HOST}",volume="/home"}}'

    asyncio.run(run())


names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_.:/\-]{0,10}", fullmatch=True)
labels = st.dictionaries(
    st.from_regex(r"[a-zA-Z][a-zA-Z0-9_]{0,10}", fullmatch=True),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10),
    max_size=3,
)
values = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)


@settings(deadline=None)
@given(st.lists(st.tuples(names, labels, values), max_size=8))
def test_what_the_writer_writes_the_reader_reads(variables: Sequence[tuple[str, dict[str, str], Value]]) -> None:
    book = Bookkeeper(online=False)
    expected: dict[str, Value] = {}
    for name, given_labels, value in variables:
        text = canonical(name, given_labels)
        if text not in expected:
            expected[text] = value
            _set(book, name, given_labels, value)
    with tempfile.TemporaryDirectory() as folder:
        assert dropin.write("a", folder, book=book) == len(expected)
        with closing(OpenFile(Path(folder) / "a.artimon")) as file:
            reader = LineReader({}, FileLimits())
            for _ in range(2):  # the second time by what it remembers
                columns = reader.read(file)
                file._fd = _rewound(file._fd)
                assert not columns.rejected.counts
                found = {
                    reader.texts[at]: row for at, row in zip(columns.column.tolist(), range(len(columns)), strict=True)
                }
                assert found.keys() == expected.keys()
                for text, row in found.items():
                    type_, cell = int(columns.type[row]), int(columns.cell[row])
                    assert _value(type_, cell, columns.strings) == expected[text]
                    assert type(_value(type_, cell, columns.strings)) is type(expected[text])


def _set(book: Bookkeeper, name: str, given_labels: dict[str, str], value: Value) -> None:
    if isinstance(value, bool):
        book.set_boolean_var(name, given_labels, value)
    elif isinstance(value, int):
        book.set_integer_var(name, given_labels, value)
    elif isinstance(value, float):
        book.set_double_var(name, given_labels, value)
    else:
        book.set_string_var(name, given_labels, value)


def _value(type_: int, cell: int, strings: Sequence[str]) -> Value:
    decoded: Sequence[Value] = (cell, struct.unpack("<d", struct.pack("<q", cell))[0], bool(cell))
    return strings[cell] if type_ == 3 else decoded[type_]


def _rewound(fd: int) -> int:
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


@pytest.mark.parametrize("seed", fixed_and_drawn([7], "bytes of a drop-in file"))
def test_no_byte_of_a_file_harms(tmp_path: Path, seed: int) -> None:
    """Files with cut, swapped and flipped bytes yield only samples and named lines."""

    async def run() -> None:
        dice = random.Random(seed)
        world = World(tmp_path)
        good = b"".join(
            b'%d name.%d{a=x,b="y \\" z",c=\'w\'} %s\n' % (world.now + i, i % 3, value)
            for i, value in enumerate((b"1", b"-2.5", b"true", b"'te xt'", b"1e9", b'"q"'))
        )
        for _ in range(300):
            data = bytearray(good)
            for _ in range(dice.randrange(1, 6)):
                at = dice.randrange(len(data))
                match dice.randrange(3):
                    case 0:
                        data[at] = dice.randrange(256)
                    case 1:
                        del data[at : at + dice.randrange(1, 30)]
                    case _:
                        data[at:at] = data[dice.randrange(len(data)) :][: dice.randrange(1, 30)]
            world.put_bytes("a.artimon", bytes(data))
            await world.poll()
            assert world.figures.poll_errors == {}
            assert all(len(problem) < 600 and problem.isprintable() for problem in world.problems)
        assert len(world.rows()) > 50  # 97 to 172 with 41 seeds

    asyncio.run(run())


def test_importing_the_writer_costs_little() -> None:
    code = "import sys, bookkeeper.dropin; assert 'thriftpy2' not in sys.modules and 'kazoo' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
