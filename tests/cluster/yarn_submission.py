"""Keeps the application running on YARN: python -m tests.cluster.yarn_submission MANAGER SPARK-SUBMIT ARGUMENT...

Submits it if the ResourceManager knows none that runs, and kills it at SIGTERM. Attempts are YARN's business."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
from typing import Any

from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime.process_setup import install_signal_handlers
from tests.cluster.yarn_parts import request_manager

ALIVE = "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"
CHECK_S = 2.0
SUBMIT_S = 300


def running_applications(manager: str) -> list[dict[str, Any]]:
    """Return the applications that have not ended. Raises OSError, ValueError."""
    found: list[dict[str, Any]] = (request_manager(manager, f"apps?states={ALIVE}")["apps"] or {}).get("app", [])
    return found


def kill_application(manager: str, number: str) -> None:
    """Ask the ResourceManager to kill an application. Raises OSError."""
    connection = http.client.HTTPConnection(manager, timeout=5)
    try:
        body, headers = json.dumps({"state": "KILLED"}), {"Content-Type": "application/json"}
        connection.request("PUT", f"/ws/v1/cluster/apps/{number}/state?user.name=root", body, headers)
        print(f"kill {number}: {connection.getresponse().read(2000)!r}", flush=True)
    finally:
        connection.close()


def keep_running(manager: str, submit: list[str], stop: threading.Event) -> None:
    """Submit whenever nothing runs, until `stop`; an unreachable manager is asked again."""
    while not SYSTEM_CLOCK.wait(stop, CHECK_S):
        try:
            if not running_applications(manager):
                print("submitting", flush=True)
                subprocess.run(submit, timeout=SUBMIT_S, check=False)
        except (OSError, ValueError, subprocess.TimeoutExpired) as problem:
            print(f"{manager}: {problem}", flush=True)


def main(manager: str, submit: list[str]) -> None:
    """Run until SIGTERM."""
    keep_running(manager, submit, install_signal_handlers())
    for application in running_applications(manager):
        kill_application(manager, application["id"])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
