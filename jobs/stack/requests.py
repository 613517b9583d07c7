"""Requests of commands to the `up` of a data directory, one of each kind at a time, and its answers (R5).

A command writes `<data>/replace/<kind>request.json`. The process of `up` does the work, and reports its progress in
`<data>/replace/<kind>answer.json`. So the work goes on if the command is killed.
"""

from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from jobs.errors import StackError
from schemas.readiness import read_json, write_json

DIRECTORY = "replace"


class UpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request. `interpreter` runs the modules of the new version; `configuration`: the files it reads."""

    id: str
    interpreter: list[str]
    configuration: list[str]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a request: `lines` for people; `over` at the end, when `error` is null if everything succeeded."""

    id: str
    lines: list[str]
    over: bool = False
    error: str | None = None


_Request = TypeVar("_Request", bound=UpRequest)
_Message = TypeVar("_Message", bound=msgspec.Struct)


class Requests(Generic[_Request]):
    """The requests of one kind, of the type `message`. `what`: what they replace, for people; `prefix`: of the names of
    their files."""

    def __init__(self, message: type[_Request], what: str, prefix: str = "") -> None:
        self._message = message
        self._what = what
        self._prefix = prefix

    def ask(self, data: Path, request: _Request) -> None:
        """Submit a request to the `up` of this directory. Raises StackError if there is one already."""
        file = self._file(data, "request")
        file.parent.mkdir(exist_ok=True)
        staged = file.with_name(f".{request.id}")
        staged.write_bytes(msgspec.json.encode(request))
        try:
            file.hardlink_to(staged)
        except FileExistsError:
            raise StackError(f"a replacement of {self._what} is already in progress: wait until it is done") from None
        finally:
            staged.unlink()

    def answer_to(self, data: Path, request_id: str) -> Answer | None:
        """What `up` has reported about a request so far."""
        answer = _read(self._file(data, "answer"), Answer)
        return answer if answer and answer.id == request_id else None

    def next(self, data: Path) -> _Request | None:
        """The request that waits, for `up`."""
        return _read(self._file(data, "request"), self._message)

    def answer(self, data: Path, answer: Answer) -> None:
        """Report progress; the end lets the next request in. Raises OSError, for example if the disk is full."""
        if answer.over and (request := self.next(data)) and request.id == answer.id:
            self._file(data, "request").unlink(missing_ok=True)
        write_json(self._file(data, "answer"), msgspec.to_builtins(answer))

    def _file(self, data: Path, name: str) -> Path:
        return data / DIRECTORY / f"{self._prefix}{name}.json"


class Answers:
    """The answers of `up` to the requests of one kind. Only the newest answer counts, which has the earlier ones."""

    def __init__(self, requests: Requests[Any], data: Path) -> None:
        self._requests = requests
        self._data = data
        self._unwritten: Answer | None = None

    def give(self, answer: Answer) -> None:
        """Raises OSError if it cannot be written now; :meth:`catch_up` repeats it."""
        self._unwritten = answer
        self.catch_up()

    def catch_up(self) -> None:
        """Write the answer that could not be written. Raises OSError if it still cannot be; then nothing else may be
        answered, so that its end reaches the command."""
        if self._unwritten is not None:
            self._requests.answer(self._data, self._unwritten)
            self._unwritten = None


def forget(data: Path) -> None:
    """Discard requests to an `up` that has ended."""
    for file in (data / DIRECTORY).glob("*.json"):
        file.unlink(missing_ok=True)


def _read(file: Path, kind: type[_Message]) -> _Message | None:
    try:
        return msgspec.convert(read_json(file), kind)
    except msgspec.ValidationError:
        return None
