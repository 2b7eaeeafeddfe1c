"""An engine that kills itself: `python -m tests.alerts.crashing_engine FOLDER SMTP MINUTES STEP NUMBER`.

Goes through the minutes that are left, mailing after each; at the NUMBERth time that STEP is reached it dies as by
kill -9. Prints "done" at the end. The data are the same for everybody: host a is down in minutes 2-4 and 7-8, b in 5.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from alerts.evaluation.alert_engine import AlertEngine, EngineConfig
from alerts.receivers.letter_sender import LetterSender
from alerts.receivers.mail import RECEIVER, load_settings
from alerts.state.alert_database import open_database
from artimon.model.clock import ManualClock
from tests.alerts.worlds import MINUTE, START, rule_text
from tests.query_dsl.plain_store import PlainStore

DOWN = {"a": (2, 3, 4, 7, 8), "b": (5,)}
MINUTES = 9


def filled_store() -> PlainStore:
    """Every minute of every host."""
    made = PlainStore()
    for host, down in DOWN.items():
        made.add("up", {"host": host}, [(START + i * MINUTE - 10_000, int(i not in down)) for i in range(MINUTES + 1)])
    return made


def main(folder: Path, address: str, deadly: str, number: int) -> None:
    """Until the end or the kill."""
    counts: dict[str, int] = {}

    def hook(step: str) -> None:
        counts[step] = counts.get(step, 0) + 1
        if step == deadly and counts[step] == number:
            os.kill(os.getpid(), signal.SIGKILL)

    rules = folder / "rules"
    rules.mkdir(exist_ok=True)
    (rules / "rules.yaml").write_text(rule_text())
    clock = ManualClock(START + 15_000)
    database, memory, damage = open_database(folder / "data", clock.now_ms(), hook)
    assert not damage, damage
    clock.advance(max(0, memory.time_ms - START))
    config = EngineConfig("test", rules, ("ops@example.org",))
    engine = AlertEngine(config, filled_store(), database, memory, clock)
    sender = LetterSender(database, RECEIVER, load_settings(address, "artimon@example.org"), "", clock)
    while True:
        engine.evaluate_due()
        while sender.send_due()[0]:
            pass
        if clock.now_ms() >= START + MINUTES * MINUTE:
            break
        clock.advance(MINUTE)
    print("done")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
