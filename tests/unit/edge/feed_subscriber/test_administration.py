"""The stream administration service is told who subscribes; one that is away stops nobody (S1)."""

import asyncio
import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from edge.feed_subscriber.administration import Administration
from edge.feed_subscriber.subscriber import FeedSubscriber


class Service(HTTPServer):
    """Writes down what it is asked."""

    def __init__(self, status: int = 200, body: bytes = b'{"ttl_s": 60}') -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str, str | None, bytes]] = []
        self.status, self.body = status, body
        self._thread = Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/base"

    def end(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.command, self.path, self.headers["Authorization"], body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        pass


def made(url: str) -> Administration:
    return Administration(url, "flight", "desk-1", "warm", "Bearer t", None)


def test_it_is_told_and_told_of_the_end() -> None:
    service = Service()
    administration = made(service.url)
    assert administration._tell() == 60
    asyncio.run(administration.leave())
    service.end()
    (method, path, authorization, body), (other, leaving, _, _) = service.asked
    assert (method, path, authorization) == ("POST", "/base/v1/feeds/flight/subscribers", "Bearer t")
    assert json.loads(body) == {"subscriber": "desk-1", "mode": "warm"}
    assert (other, leaving) == ("DELETE", "/base/v1/feeds/flight/subscribers/desk-1")


@pytest.mark.parametrize("authorization", ["Bearer t\n", "Bearer \r\nX: y", "Bearer ü", "Bearer €"])
def test_a_value_that_no_header_can_have_is_refused_at_once(authorization: str) -> None:
    """And not each time, unseen, in the background."""
    with pytest.raises(ValueError, match="authorization is the value of a header"):
        FeedSubscriber("flight", kafka="a:1", administration="http://a:1", authorization=authorization)


def test_whatever_it_answers_it_is_asked_again() -> None:
    bodies = [b"<html>", b"[]", b'{"ttl_s": "x"}', b'{"ttl_s": 1%b}' % (b"0" * 400), b"[" * 60_000, b"\xff"]
    for status, body in ((404, b"no"), *((200, body) for body in bodies)):
        service = Service(status, body)
        assert made(service.url)._tell() == 15
        service.end()
    assert made(service.url)._tell() == 15, "nobody listens"
