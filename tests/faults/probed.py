"""A process of the stack that kills or stops itself at a named point when it is told to:
python -m tests.faults.probed FOLDER PART COMMAND…, where COMMAND… are the arguments of `artimon`.

The file `<FOLDER>/<PART>.<point>`, containing "kill" or "stop", is such an order; it is taken once, and becomes
`<PART>.<point>.done`.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path

from artimon import cli
from pipeline.compaction import compactor_process as service
from pipeline.spark import application

_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def obey(folder: Path, part: str, point: str) -> None:
    """The probe."""
    order = folder / f"{part}.{point}"
    try:
        number = _SIGNALS[order.read_text()]
        order.rename(order.with_name(f"{order.name}.done"))
    except OSError:
        return
    os.kill(os.getpid(), number)


def main(folder: Path, part: str, command: list[str]) -> None:
    """Run the command with the probe in place of none."""
    probe = partial(obey, folder, part)
    application.run_application = partial(application.run_application, probe=probe)
    service.run_compactor = partial(service.run_compactor, probe=probe)
    sys.argv[1:] = command
    cli.main()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
