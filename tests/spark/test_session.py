"""Settings of Spark sessions by place of execution, without a JVM, and detection of lost sessions."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from artimon.model.clock import ManualClock
from pipeline.spark.spark_session import MAX_SILENT_CHECKS, PYTHON, SessionWatch, session_settings
from pipeline.spark.spark_settings import PropertiesError, SparkConfig, parse_conf, read_properties
from tests.waiting import eventually


def settings(tmp_path: Path, master: str, conf: dict[str, str] | None = None, **submitted: str) -> dict[str, str]:
    config = SparkConfig("z", "k", "hdfs://h", tmp_path, jars=["/a.jar", "/b.jar"], master=master, conf=conf or {})
    return session_settings(config, tmp_path / "pools.xml", {k.replace("_", "."): v for k, v in submitted.items()})


def test_a_local_session_listens_on_loopback_only(tmp_path: Path) -> None:
    found = settings(tmp_path, "local[4,4]")
    assert (found["spark.driver.host"], found["spark.driver.bindAddress"]) == ("127.0.0.1", "127.0.0.1")
    assert found["spark.driver.extraClassPath"] == "/a.jar:/b.jar"
    assert found[PYTHON] == sys.executable
    assert "spark.jars" not in found


@pytest.mark.parametrize("master", ["spark://host:7077", "local-cluster[2,1,1024]"])
def test_a_cluster_session_has_no_driver_paths_and_no_loopback(tmp_path: Path, master: str) -> None:
    found = settings(tmp_path, master, {"spark.executor.memory": "3g", PYTHON: "/opt/python"})
    assert found["spark.master"] == master
    assert found["spark.jars"] == "/a.jar,/b.jar"
    assert (found["spark.executor.memory"], found[PYTHON]) == ("3g", "/opt/python")
    assert "127.0.0.1" not in found.values()
    drivers = {"spark.scheduler.allocation.file", "spark.sql.warehouse.dir"}
    assert not {key for key, value in found.items() if str(tmp_path) in value} - drivers


def test_settings_of_spark_submit_are_not_overridden(tmp_path: Path) -> None:
    found = settings(tmp_path, "", spark_master="yarn", spark_executor_memory="5g", spark_ui_enabled="true")
    assert not {"spark.master", "spark.executor.memory", "spark.ui.enabled", "spark.driver.memory", PYTHON} & {*found}
    assert found["spark.scheduler.mode"] == "FAIR"


def test_a_properties_file_is_parsed_like_sparks(tmp_path: Path) -> None:
    path = tmp_path / "x.properties"
    path.write_text("# comment\n\nspark.master   yarn\nspark.a=1 2\n  spark.b.c : x=y\n")
    assert read_properties(path) == {"spark.master": "yarn", "spark.a": "1 2", "spark.b.c": "x=y"}


@pytest.mark.parametrize("text", ["spark.x", "master=yarn", "spark. =1", "--conf"])
def test_an_invalid_setting_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.properties"
    path.write_text(f"spark.a 1\n{text}\n")
    with pytest.raises(PropertiesError, match=r"x\.properties:2: .* is not a Spark setting"):
        read_properties(path)
    with pytest.raises(PropertiesError, match="--conf"):
        parse_conf([text])


class Context:
    """The calls of SessionWatch on a Spark context whose JVM was started by spark-submit."""

    def __init__(self) -> None:
        self._gateway = self._jsc = self
        self.stopped, self.hangs = False, threading.Event()
        self.hangs.set()

    def sc(self) -> Context:
        return self

    def isStopped(self) -> bool:
        self.hangs.wait(30)
        return self.stopped


def watched(context: Context, stop: threading.Event) -> SessionWatch:
    session: Any = SimpleNamespace(sparkContext=context)
    return SessionWatch(session, stop, ManualClock())


def test_an_application_ended_by_the_cluster_is_detected() -> None:
    context, stop = Context(), threading.Event()
    watch = watched(context, stop)
    assert watch.is_alive()
    context.stopped = True
    eventually(lambda: not watch.is_alive(), "the end")
    stop.set()


def test_a_silent_jvm_is_given_up_only_after_many_checks() -> None:
    context, stop = Context(), threading.Event()
    context.hangs.clear()
    watch = watched(context, stop)
    looks = sum(1 for _ in range(MAX_SILENT_CHECKS * 2) if watch.is_alive())
    assert looks == MAX_SILENT_CHECKS - 1
    stop.set()
    context.hangs.set()
