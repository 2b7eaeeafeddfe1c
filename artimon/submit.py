"""What is handed to spark-submit: `spark-submit [Spark's options] submit.py [options of artimon spark]`.

`artimon spark` is the same application; there Artimon starts Spark, here Spark starts Artimon, and says where it runs.
The file may be copied: the package itself comes from the Python environment of the driver. docs/deploy.md.
"""

from __future__ import annotations

import sys
from pathlib import Path


def run() -> None:
    """`artimon spark` with the arguments of this process, under the master that spark-submit was told."""
    here = Path(__file__).resolve().parent
    # the folder of a script comes first on Python's path: our parts must not stand there under their short names
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    from artimon.cli import main

    sys.argv[1:] = ["spark", "--submitted", *sys.argv[1:]]
    main()


if __name__ == "__main__":
    run()
