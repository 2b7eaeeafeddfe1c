"""`python -m scripts.proof SECONDS [OPTION...]`: `artimon up` with these options, which ends with the proof."""

from __future__ import annotations

import sys
import threading

from artimon.cli import main
from artimon.stack.stack import Stack
from scripts.proof.proof import prove_stack


def run() -> None:
    """Exit code: 0 proven, 1 not, 130 interrupted."""
    seconds, *options = sys.argv[1:]

    def prove(stack: Stack, stop: threading.Event) -> int:
        return prove_stack(stack, float(seconds), stop)

    main(["up", *options], prove)


if __name__ == "__main__":
    run()
