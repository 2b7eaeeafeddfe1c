"""Import by Prometheus' remote read."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from artimon.api.remote_read import ReadRequest, parse_read_request
from artimon.cli.history_import import ImportFailure, RemoteJob
from artimon.model.values import STALE
from artimon.runtime.remote_read_messages import MESSAGES
from artimon.runtime.snappy_block import compress_block
from sources.history import remote_read_client
from tests.programs import require
from tests.sockets import free_port
from tests.transfer.importing import MINUTE_MS, START_MS, samples
from tests.waiting import eventually

HOUR_MS = 60 * MINUTE_MS
POLLS = [(START_MS + n * MINUTE_MS, float(n % 50)) for n in range(150)] + [(START_MS + 200 * MINUTE_MS, STALE)]


class Server:
    """Answers with those of POLLS that are asked for, of two series; `status`: answers that instead."""

    def __init__(self) -> None:
        self.asked: list[ReadRequest] = []
        self.headers: list[Any] = []
        self.status = 200
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                served.headers.append(dict(self.headers))
                served.asked.append(parse_read_request(self.rfile.read(int(self.headers["Content-Length"]))))
                data = served.answer() if served.status == 200 else b"not now"
                self.send_response(served.status)
                self.send_header("Location", "http://127.0.0.1:1/")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                del format, args

        self._http = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/api/v1/read"
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    def answer(self) -> bytes:
        query = self.asked[-1].queries[0]
        response = MESSAGES["ReadResponse"]()
        result = response.results.add()
        for host in ("a", "b"):
            series = result.timeseries.add()
            for label, text in (("__name__", "req_total"), ("host", host)):
                series.labels.add(name=label, value=text)
            for time_ms, value in POLLS:
                if query.after_ms < time_ms <= query.until_ms:
                    series.samples.add(value=value, timestamp=time_ms)
        return compress_block(response.SerializeToString())

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(10)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def job(url: str, hdfs: str, data: Path, selector: str = "req_total", token_file: Path | None = None) -> RemoteJob:
    at: Any = {"source": "remote", "keep": "default", "hdfs": hdfs, "data": data}
    start, end = START_MS - 1, START_MS + 4 * HOUR_MS
    return RemoteJob.of(url, selector, start, end, "1h", token_file, **at)


def test_windows_give_every_sample_once(hdfs: str, tmp_path: Path, server: Server) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    chosen = job(server.url, hdfs, tmp_path, 'req.*{host=~"a|b",x!="y"}', token)
    result, rejects = chosen.run()
    assert (result.samples, rejects.counts.total(), len(server.asked)) == (302, 0, 5)
    assert server.headers[0]["Authorization"] == "Bearer secret"
    matchers = {(one.label, one.op, one.value) for one in server.asked[0].queries[0].matchers}
    assert matchers == {("__name__", "=~", "req\\..*"), ("host", "=~", "a|b"), ("x", "!=", "y")}
    found = [(one.time_ms, one.value) for one in samples(hdfs, 'req_total{host="a"}')]
    assert found == [*POLLS[:-1], (POLLS[-1][0], None)]
    births = {one.birth_ms for one in samples(hdfs, 'req_total{host="a"}')}
    assert births == {1, START_MS + 49 * MINUTE_MS, START_MS + 99 * MINUTE_MS}
    assert chosen.run()[0].is_known
    assert len(server.asked) == 5


@pytest.mark.parametrize(("status", "told"), [(503, "HTTP 503: not now"), (302, "HTTP 302")])
def test_other_answers_are_errors(hdfs: str, tmp_path: Path, server: Server, status: int, told: str) -> None:
    server.status = status
    with pytest.raises(ImportFailure, match=told):
        job(server.url, hdfs, tmp_path).run()
    server.status = 200
    assert job(server.url, hdfs, tmp_path).run()[0].samples == 302


def test_a_large_answer_is_refused(hdfs: str, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_read_client, "MAX_ANSWER_BYTES", 1_000)
    with pytest.raises(ImportFailure, match="a shorter --window"):
        job(server.url, hdfs, tmp_path).run()
    with pytest.raises(ValueError, match="is not an address"):
        job("http://user:word@host/read", hdfs, tmp_path)


@pytest.mark.slow
def test_a_prometheus_server(hdfs: str, tmp_path: Path) -> None:
    promtool, prometheus = require("promtool").path, require("prometheus")
    text = tmp_path / "given.om"
    polls = [(n, poll) for n in range(3) for poll in range(200)]
    lines = [f'req_total{{host="h{n}"}} {poll % 70} {START_MS / 1000 + poll * 60}' for n, poll in polls]
    text.write_text("# TYPE req counter\n" + "\n".join(lines) + "\n# EOF\n")
    words = [str(promtool), "tsdb", "create-blocks-from", "openmetrics", str(text), str(tmp_path / "blocks")]
    subprocess.run(words, check=True, capture_output=True, timeout=120)
    (tmp_path / "p.yml").write_text("{}")
    port = free_port()
    options = [f"--storage.tsdb.path={tmp_path / 'blocks'}", "--storage.tsdb.retention.time=100y"]
    options += [f"--config.file={tmp_path / 'p.yml'}", f"--web.listen-address=127.0.0.1:{port}"]
    url = f"http://127.0.0.1:{port}/api/v1/read"
    with subprocess.Popen([str(prometheus.path), *options], stderr=subprocess.DEVNULL) as process:
        try:
            stored: list[int] = []

            def answers() -> bool:
                try:
                    stored.append(job(url, hdfs, tmp_path).run()[0].samples)
                except ImportFailure:
                    return False
                return True

            eventually(answers, "Prometheus answers")
            assert stored == [600]
        finally:
            process.terminate()
            process.wait(30)
    plain = [(one.series, one.time_ms - START_MS, one.value) for one in samples(hdfs)]
    assert plain == [(f'req_total{{host="h{n}"}}', poll * MINUTE_MS, float(poll % 70)) for n, poll in polls]
