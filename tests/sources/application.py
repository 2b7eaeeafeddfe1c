"""Application of the tests: it carries out lines from standard input and answers each with a line."""

from __future__ import annotations

import os
import sys

import bookkeeper
from bookkeeper.process import process_endpoint as endpoint


def main() -> None:
    if "ARTIMON_DROPIN" in os.environ:
        endpoint.REGISTRATION_TIMEOUT_S = endpoint.EXIT_TIMEOUT_S = 60.0  # on a machine that is busy, too
    for line in sys.stdin:
        words = line.split()
        match words:
            case ["add", name, amount]:
                print(bookkeeper.add_to_integer_var(name, {"part": "x"}, int(amount)), flush=True)
            case ["set", name, value]:
                bookkeeper.set_double_var(name, {"part": "x"}, float(value))
                print(value, flush=True)
            case ["text", name, word]:
                bookkeeper.set_string_var(name, {"part": "x"}, word)
                print(word, flush=True)
            case ["drop", name]:
                bookkeeper.remove_integer_var(name, {"part": "x"})
                print("dropped", flush=True)


if __name__ == "__main__":
    main()
