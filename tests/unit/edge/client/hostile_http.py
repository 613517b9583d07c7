"""A server for HTTP clients under test that answers what a test wants, down to the byte."""

import asyncio
import socket
from collections.abc import Callable
from types import TracebackType

HOST = "127.0.0.1"
CLIENT = "http:van-7"
HEAD = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Client-Id: {CLIENT}\r\n".encode()
STREAM = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
Answer = Callable[[str, bytes], bytes | None]


def answer(status: str, content_type: str, body: bytes, *fields: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", f"Content-Length: {len(body)}", *fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class HostileHttp:
    """`stream` answers each GET, `post` each POST, from the request's head and body; None: never. `cut`: after how many
    bytes of an answer to a POST the connection breaks, 0 for never. `piece`: the body of a POST comes over a slow link,
    so many bytes in 10 ms; 0: at once."""

    def __init__(self, post: Answer, stream: Answer = lambda head, body: STREAM) -> None:
        self._post, self._stream = post, stream
        self.cut = self.piece = 0
        self.posts = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "HostileHttp":
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)  # the rest stays with the client
        listening.bind((HOST, 0))
        self._server = await asyncio.start_server(self._serve, sock=listening)
        self.url = f"http://{HOST}:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                if head.startswith("GET"):
                    if (said := self._stream(head, b"")) is not None:
                        writer.write(said)
                    await reader.read()
                    return
                length = int(head.lower().partition("content-length:")[2].partition("\r")[0] or 0)
                body = b""
                while self.piece and len(body) < length - self.piece:
                    body += await reader.readexactly(self.piece)
                    await asyncio.sleep(0.01)
                body += await reader.readexactly(length - len(body))
                self.posts += 1
                said = self._post(head, body)
                if said is None:
                    await reader.read()
                    return
                writer.write(said[: self.cut] if self.cut else said)
                if self.cut:
                    await writer.drain()
                    return
        except (OSError, EOFError):
            pass
        finally:
            writer.close()
