"""The control socket: `status`, `log`, `trace`, `send`, … ask the running agent, and do not open its files (M20).

A Unix domain socket in the store's directory, which only the user may use. One line of JSON each way, then the agent
closes: `{"command": "trace", "id": "…"}` is answered with `{"ok": …}` or `{"error": "…"}`.
"""

import asyncio
import base64
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from edge.agent.errors import AgentNotRunning, ControlError
from schemas.errors import WaystationError

LINE_BYTES_MAX: Final = 64 << 20
TIMEOUT_S: Final = 30.0
CONNECTIONS_MAX: Final = 20
PATH_BYTES_MAX: Final = 100  # of a socket's path; the system's limit is 107, or 103
NAME: Final = "agent.sock"

_log: Final = logging.getLogger("waystation.agent")

Handler = Callable[[dict[str, Any]], Awaitable[Any]]


class ControlServer:
    """`handlers`: by command. Only one agent uses a directory: what is left of an earlier one is replaced."""

    def __init__(self, directory: Path, handlers: Mapping[str, Handler]) -> None:
        self._path, self._handlers = directory / NAME, handlers
        self._server: asyncio.Server | None = None
        self._connections = 0

    async def open(self) -> None:
        """Raises ControlError."""
        _check(self._path)
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)  # from the first moment nobody else may connect
        try:
            listener.bind(str(self._path))
        except OSError as error:
            listener.close()
            raise ControlError(f"the control socket {self._path} cannot be made: {error.strerror}") from error
        finally:
            os.umask(before)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=LINE_BYTES_MAX)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= CONNECTIONS_MAX:
                async with asyncio.timeout(TIMEOUT_S):
                    writer.write(msgspec.json.encode(await self._answer(await reader.readline())) + b"\n")
                    await writer.drain()
        except (TimeoutError, ValueError, OSError):
            pass
        finally:
            self._connections -= 1
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            return {"error": f"the request is not valid: {error}"}
        handler = self._handlers.get(str(request.get("command")))
        if handler is None:
            return {"error": "the running agent does not know this command: it has another version"}
        try:
            return {"ok": await handler(request)}
        except WaystationError as error:
            return {"error": str(error)}
        except Exception as error:
            _log.exception("the command %s has failed", request.get("command"))
            return {"error": f"the agent failed ({type(error).__name__}); its log says more"}


def ask(directory: Path, command: str, **request: Any) -> Any:
    """The running agent's answer. Raises AgentNotRunning, ControlError."""
    path = directory / NAME
    _check(path)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(TIMEOUT_S)
            connection.connect(str(path))
            connection.sendall(msgspec.json.encode({"command": command, **request}) + b"\n")
            with connection.makefile("rb") as stream:
                line = stream.readline(LINE_BYTES_MAX)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise AgentNotRunning(f"no agent runs in {directory}: start it with `waystation agent up`") from error
    except OSError as error:
        raise ControlError(f"the agent in {directory} cannot be asked: {error.strerror or error}") from error
    try:
        answer = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, msgspec.ValidationError):
        raise ControlError(f"the agent in {directory} has ended, or is too busy to answer: try again") from None
    if "error" in answer:
        raise ControlError(str(answer["error"]))
    return answer.get("ok")


def in_json(content: bytes) -> str:
    """Bytes in a request."""
    return base64.b64encode(content).decode("ascii")


def from_json(text: Any) -> bytes:
    """The bytes in a request. Raises ControlError."""
    try:
        return base64.b64decode(str(text), validate=True)
    except ValueError:
        raise ControlError("the request's content is not base64") from None


def _check(path: Path) -> None:
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise ControlError(f"the path {path} is too long for a socket: set store.directory to a shorter one")
