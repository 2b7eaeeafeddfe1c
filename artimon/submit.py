"""Application file for spark-submit: `spark-submit [Spark's options] submit.py [options of artimon spark]`.

`artimon spark` is the same application, but there Artimon starts Spark and chooses the master; here spark-submit does.
This file may be copied: the package itself comes from the Python environment of the driver. docs/deploy.md.
"""

from __future__ import annotations

import sys
from pathlib import Path


def run() -> None:
    """Run `artimon spark` with the arguments of this process, under the master given to spark-submit."""
    here = Path(__file__).resolve().parent
    # Python puts the script's folder first on its path: our modules must not be importable by their short names
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    from artimon.cli import main

    sys.argv[1:] = ["spark", "--submitted", *sys.argv[1:]]
    main()


if __name__ == "__main__":
    run()
