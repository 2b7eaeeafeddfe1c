"""The application of the end-to-end test: adds known amounts to 200 variables of the four types until SIGUSR1.

It then writes its own final values to the file named by its argument: JSON {canonical text: [type, value]}, doubles as
hex, so that NaN and the last bit survive; and it lives on, unchanging, until SIGTERM.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import bookkeeper
from bookkeeper.variables.canonical import canonical

COUNT = 50
BIG = 2**53


def main() -> None:
    final, seed = Path(sys.argv[1]), int(sys.argv[2])
    still, end = threading.Event(), threading.Event()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        (still if number == signal.SIGUSR1 else end).set()

    signal.signal(signal.SIGUSR1, on_signal)
    signal.signal(signal.SIGTERM, on_signal)
    rng = random.Random(seed)
    values: dict[str, list[object]] = {}
    while True:
        for i in range(COUNT):
            labels = {"i": str(i), "place": "Zürich ☃"} if i % 7 == 0 else {"i": str(i)}
            _step(rng, i, labels, values)
        if still.wait(0.2):
            break
    fresh = final.with_suffix(".new")
    fresh.write_text(json.dumps(values))
    fresh.replace(final)
    end.wait()


def _step(rng: random.Random, i: int, labels: dict[str, str], values: dict[str, list[object]]) -> None:
    text = canonical("e2e.integer", labels)
    amount = BIG + 1 if i == 0 and text not in values else rng.randrange(1, 1000)
    total = bookkeeper.add_to_integer_var("e2e.integer", labels, amount)
    values[text] = ["integer", total]
    if i == 1:
        double = float("nan")
        bookkeeper.set_double_var("e2e.double", labels, double)
    else:
        double = bookkeeper.add_to_double_var("e2e.double", labels, rng.random())
    values[canonical("e2e.double", labels)] = ["double", double.hex()]
    boolean = rng.random() < 0.5
    bookkeeper.set_boolean_var("e2e.boolean", labels, boolean)
    values[canonical("e2e.boolean", labels)] = ["boolean", boolean]
    text = f'wört-{rng.randrange(10)}-☃\n"{i}"'
    bookkeeper.set_string_var("e2e.string", labels, text)
    values[canonical("e2e.string", labels)] = ["string", text]


if __name__ == "__main__":
    main()
