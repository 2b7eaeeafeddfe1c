"""The Celery application of the tests. Its broker is a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from celery import Celery

from bookkeeper.integrations import celery

FOLDER = Path(os.environ.get("TASKS_FOLDER", "."))
app = Celery("tasks", broker="filesystem://")
app.conf.update(
    broker_transport_options={
        "data_folder_in": str(FOLDER / "messages"),
        "data_folder_out": str(FOLDER / "messages"),
        "control_folder": str(FOLDER / "control"),
        "polling_interval": 0.05,
    },
    task_ignore_result=True,
    worker_enable_remote_control=False,
)
celery.install()


@app.task(name="tests.fine")  # type: ignore[untyped-decorator]
def fine() -> None:
    """Ends well."""


@app.task(name="tests.broken")  # type: ignore[untyped-decorator]
def broken() -> None:
    raise RuntimeError("broken")


@app.task(name="tests.again", bind=True, max_retries=2)  # type: ignore[untyped-decorator]
def again(task: Any) -> None:
    raise task.retry(countdown=0)
