"""A benchmark for the tests of the whole run: prints what it is told to, then breaks if it is told to."""

from __future__ import annotations

import sys

from benchmarks.common import Parts, emit, fail


def broken() -> None:
    """As a part that cannot be measured."""
    raise RuntimeError("no server\nanswers")


if __name__ == "__main__":
    parts = Parts()
    for word in sys.argv[1:]:
        if word == "break":
            sys.exit("told to break")
        elif word == "part":
            parts.run("fake.part", broken)
        elif word == "peer":
            fail("peer.nobody.fake", "not here")
        elif word == "noise":
            print("some text")
        else:
            emit(word, 12345.678, "s")
    parts.finish()
