"""Rules for other labels. As a program: a relabel that kills itself with -9:
python -m tests.transfer.relabels HDFS SELECTOR FROM TO RULES FOLDER POINT NTH."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from artimon.cli.history_relabel import SelectedRelabel, read_rules
from artimon.model.clock import SYSTEM_CLOCK
from tests.crashing import kill_at
from tests.spark.local_files import local_files

RENAME = """
relabel:
  - action: labelmap
    regex: host
    replacement: node
  - action: labeldrop
    regex: host
"""
"""The label host becomes node."""
PREFIX = """
relabel:
  - source_labels: [host]
    regex: (.+)
    target_label: host
    replacement: dc1-$1
"""
"""Every host gets a prefix, each time that the rules are applied."""
DROP_HOST = """
relabel:
  - action: labeldrop
    regex: host
"""


def main(words: Sequence[str]) -> None:
    hdfs, selector, start, end, rules, folder, point, nth = words
    with local_files(SYSTEM_CLOCK):
        chosen = SelectedRelabel(
            hdfs,
            selector,
            int(start),
            int(end),
            read_rules(Path(rules)),
            Path(folder),
            probe=kill_at(point, int(nth)),
        )
        token = chosen.plan()[1]
        print(token, flush=True)
        chosen.confirm(token)


if __name__ == "__main__":
    main(sys.argv[1:])
