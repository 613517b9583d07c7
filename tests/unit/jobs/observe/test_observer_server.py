"""`/metrics`, `/healthz` and `/readyz` of a Spark application: what they answer, and that nobody can hold them up."""

import gzip
import json
import socket
from contextlib import suppress
from unittest.mock import patch
from urllib.request import Request, urlopen

import pytest
from prometheus_client import Info

from jobs.errors import JobError
from jobs.observe import server
from jobs.observe.observer import Observer
from tests.unit.jobs.observe.recorded import HOST, address, get, observer, tell
from tests.waiting import wait_for


def test_alive_from_the_beginning_and_ready_when_every_query_runs() -> None:
    with observer() as this:
        for path in ("/healthz", "/livez"):
            assert get(this, path) == (200, "ok\n")
        status, text = get(this, "/readyz")
        assert (status, json.loads(text)["parts"].keys()) == (503, {"application"})
        this.readiness.expect(["messages", "routes"])
        for part in this.watchers:
            part.begun("routes")
        tell(this, "messages")
        status, text = get(this, "/readyz")
        report = json.loads(text)
        assert (status, report["ready"]) == (503, False)
        assert report["parts"]["messages"] == {"ready": True, "detail": "ok"}
        assert "not finished a batch" in report["parts"]["routes"]["detail"]
        this.readiness.runs("routes")
        status, text = get(this, "/readyz")
        assert (status, json.loads(text)["ready"]) == (200, True)
        this.readiness.ends()
        status, text = get(this, "/readyz")
        assert (status, json.loads(text)["parts"]["application"]["detail"]) == (503, "stopping")


def test_a_failing_query_is_named_with_its_error() -> None:
    with observer() as this:
        this.readiness.expect(["messages"])
        tell(this, "messages")
        for part in this.watchers:
            part.failed("messages", "disk full")
        status, text = get(this, "/readyz")
        assert status == 503
        assert json.loads(text)["parts"]["messages"]["detail"] == "failed: disk full"
        assert get(this, "/healthz")[0] == 200


def test_other_paths_and_methods_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    """The log says nothing of them."""
    with observer() as this:
        for path in ("/", "/metrics/", "/admin/sessions", "/%00", "/../etc/passwd"):
            assert get(this, path)[0] == 404, path
        malformed = (b"\x16\x03\x01\x02", b"GET " + b"a" * 70_000, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200)
        for request in (b"POST /metrics HTTP/1.1\r\nHost: x", b"DELETE /healthz HTTP/1.0", *malformed):
            status = raw(address(this), request + b"\r\n\r\n").split(b" ")[1]
            assert status in (b"400", b"405"), request[:30]
    assert not caplog.records


def test_metrics_are_in_the_format_that_is_asked_for() -> None:
    with observer() as this:
        plain = raw(address(this), b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"Content-Type: text/plain" in plain
        accept = b"Accept: application/openmetrics-text; version=1.0.0\r\n"
        assert raw(address(this), b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + accept + b"\r\n").endswith(b"# EOF\n")


def test_only_the_metrics_that_are_asked_for_and_compressed_if_wanted() -> None:
    with observer() as this:
        text = get(this, "/metrics?name[]=waystation_spark_info")[1]
        assert [line.split("{")[0] for line in text.splitlines() if line[0] != "#"] == ["waystation_spark_info"]
        request = Request(f"http://{address(this)}/metrics", headers={"Accept-Encoding": "gzip"})
        with urlopen(request, timeout=20) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            assert b"\nwaystation_spark_info{" in gzip.decompress(answer.read())


def test_a_client_that_does_not_read_is_let_go() -> None:
    patches = patch.multiple(server, LONGEST_S=1.0, CONNECTIONS=1)
    with patches, observer() as this:
        Info("large", "More than sockets buffer", registry=this.registry).info({"text": "x" * 30_000_000})
        with connect(address(this)) as idle:
            idle.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            idle.recv(1)
            wait_for(lambda: answers(this), "there is room again")


def test_a_connection_without_a_request_ends_and_those_too_many_at_once() -> None:
    """Whoever holds connections keeps nobody out for long."""
    patches = patch.multiple(server, LONGEST_S=0.3, CONNECTIONS=2, LOOK_S=0.1)
    with patches, observer() as this:
        holding = [connect(address(this)) for _ in range(2)]
        holding[1].sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        with connect(address(this)) as one_more:
            assert one_more.recv(100) == b""
        for connection in holding:
            assert connection.recv(100) == b""
            connection.close()
        wait_for(lambda: answers(this), "there is room again")


def test_a_port_that_is_taken_is_one_sentence_that_names_the_setting() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(JobError, match=rf"{HOST}:{port}.*ledger.metrics_port") as raised, observer(port=port):
            pass
        assert "\n" not in str(raised.value)


def test_one_that_replaces_another_serves_as_soon_as_that_has_left() -> None:
    """R5: both run for a while, and listen at one address, one after the other."""
    with patch.object(server, "LOOK_S", 0.05), observer("router") as old:
        port = int(address(old).rpartition(":")[2])
        with observer("router", port, awaits_address=True) as new:
            assert address(new) == address(old)
            new.readiness.expect(["of the new one"])
            assert "of the new one" not in get(new, "/readyz")[1], "the old one answers"
            old.stop()
            wait_for(lambda: answers(new), "the new one answers")
            assert "of the new one" in get(new, "/readyz")[1]
        with observer("router", port, awaits_address=True), observer("router", port, awaits_address=True):
            pass  # one that never had the address ends all the same


def answers(this: Observer) -> bool:
    with suppress(OSError):
        return get(this, "/healthz")[0] == 200
    return False


def connect(where: str) -> socket.socket:
    host, _, port = where.rpartition(":")
    return socket.create_connection((host, int(port)), 20)


def raw(where: str, request: bytes) -> bytes:
    """All that is answered to some bytes."""
    with connect(where) as connection:
        connection.sendall(request)
        answer = bytearray()
        while part := connection.recv(65536):
            answer += part
        return bytes(answer)
