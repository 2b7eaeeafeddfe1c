"""A deletion that kills itself with -9: python -m tests.transfer.deleting HDFS SELECTOR FROM TO POINT NTH."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from artimon.cli.history_deletion import SelectedDeletion
from artimon.model.clock import SYSTEM_CLOCK
from tests.crashing import kill_at
from tests.spark.local_files import local_files


def main(words: Sequence[str]) -> None:
    hdfs, selector, start, end, point, nth = words
    with local_files(SYSTEM_CLOCK):
        chosen = SelectedDeletion(hdfs, selector, int(start), int(end), probe=kill_at(point, int(nth)))
        chosen.confirm(chosen.plan()[1])


if __name__ == "__main__":
    main(sys.argv[1:])
