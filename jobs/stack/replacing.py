"""Replaces routers while they run, as requested by `waystation router replace` (R5).

The command writes `<data>/replace/request.json`; the process of `up` replaces one part after the other, and reports its
progress in `<data>/replace/answer.json`. So a replacement goes on if the command is killed. If `up` is killed, only
`generations.json` counts, which changes once a candidate has become the part.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from jobs.errors import StackError
from jobs.stack import generations
from jobs.stack.part import Part
from jobs.stack.parts import announced
from jobs.stack.rolling_replacement import RollingReplacement, Stage
from jobs.stack.supervisor import Supervisor
from schemas.readiness import alongside, read_json, ready_file, write_json

ALONGSIDE = ("--alongside",)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request. `interpreter` runs the modules of the new version; `configuration`: the files it reads."""

    id: str
    roles: list[str]
    interpreter: list[str]
    configuration: list[str]
    timeout_s: float


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a request: `lines` for people; `over` at the end, when `error` is null if everything succeeded."""

    id: str
    lines: list[str]
    over: bool = False
    error: str | None = None


_Message = TypeVar("_Message", Request, Answer)


class RouterPart(NamedTuple):
    """A part that routes: its name and roles, and a function that makes it for a generation and a request."""

    name: str
    roles: list[str]
    make: Callable[[Request, int], Part]


def ask(data: Path, request: Request) -> None:
    """Submit a request to the `up` of this directory. Raises StackError if there is one already."""
    file = _request_file(data)
    file.parent.mkdir(exist_ok=True)
    staged = file.with_name(f".{request.id}")
    staged.write_bytes(msgspec.json.encode(request))
    try:
        file.hardlink_to(staged)
    except FileExistsError:
        raise StackError("a replacement of routers is already in progress: wait until it is done") from None
    finally:
        staged.unlink()


def answer_to(data: Path, request_id: str) -> Answer | None:
    """What `up` has reported about a request so far."""
    answer = _read(_answer_file(data), Answer)
    return answer if answer and answer.id == request_id else None


def forget(data: Path) -> None:
    """Discard requests to an `up` that has ended."""
    for file in (_request_file(data), _answer_file(data)):
        file.unlink(missing_ok=True)


class Replacing:
    """Handles requests for the supervisor, which calls it at each of its ticks."""

    def __init__(self, data: Path, parts: Sequence[RouterPart]) -> None:
        self._data = data
        self._parts = parts
        self._request: Request | None = None
        self._lines: list[str] = []
        self._waiting: list[RouterPart] = []
        self._now: tuple[RouterPart, int, RollingReplacement] | None = None

    def __call__(self, supervisor: Supervisor) -> None:
        if self._request is None:
            self._take_up(supervisor)
        if self._request and self._now is None:
            self._next(supervisor, self._request)
        if self._request and self._now:
            self._look(self._request, *self._now)

    def _take_up(self, supervisor: Supervisor) -> None:
        if not supervisor.ready or not (request := _read(_request_file(self._data), Request)):
            return
        self._request, self._lines = request, []
        self._waiting = [part for part in self._parts if set(part.roles) & set(request.roles)]
        also = {role for part in self._waiting for role in part.roles} - set(request.roles)
        if also:
            asked = ", ".join(request.roles)
            self._over(f"{asked} and {', '.join(also)} run in one process: replace both, with --role both")

    def _next(self, supervisor: Supervisor, request: Request) -> None:
        if not self._waiting:
            self._over(None)
            return
        part = self._waiting.pop(0)
        generation = generations.next_generation(self._data, part.roles)
        name = alongside(part.name)
        ready_file(self._data, name).unlink(missing_ok=True)
        is_caught_up = partial(_has_announced, self._data, name)
        new = part.make(request, generation)
        try:
            replacement = supervisor.replace(new, ALONGSIDE, is_caught_up, request.timeout_s)
        except OSError as error:
            self._over(f"{part.name} was not replaced: cannot run {new.argv[0]}: {error.strerror}")
            return
        self._now = (part, generation, replacement)
        self._say(f"{part.name}: a new process is running alongside the old one")

    def _look(self, request: Request, part: RouterPart, generation: int, replacement: RollingReplacement) -> None:
        has_replaced = replacement.error is None and replacement.stage is not Stage.ALONGSIDE
        if has_replaced and generations.generation_of(self._data, part.roles) != generation:
            generations.record(self._data, part.roles, generation)
            self._say(f"{part.name}: the new process caught up after {replacement.took_s:.1f} s; stopping the old one")
        if replacement.stage is Stage.OVER:
            self._now = None
            generations.prune(self._data, part.roles)
            if replacement.error:
                log = self._data / "logs" / f"{part.name}.log"
                self._over(
                    f"{part.name} was not replaced, and its old process keeps running: {replacement.error}; read {log}"
                )
            else:
                self._say(f"{part.name}: replaced")

    def _say(self, line: str) -> None:
        self._lines.append(line)
        self._answer(over=False, error=None)

    def _over(self, error: str | None) -> None:
        _request_file(self._data).unlink(missing_ok=True)
        self._answer(over=True, error=error)
        self._request, self._waiting = None, []

    def _answer(self, over: bool, error: str | None) -> None:
        assert self._request is not None
        answer = Answer(id=self._request.id, lines=self._lines, over=over, error=error)
        write_json(_answer_file(self._data), msgspec.to_builtins(answer))


def _has_announced(data: Path, name: str) -> bool:
    return announced(data, name) is not None


def _read(file: Path, kind: type[_Message]) -> _Message | None:
    try:
        return msgspec.convert(read_json(file), kind)
    except msgspec.ValidationError:
        return None


def _request_file(data: Path) -> Path:
    return data / "replace" / "request.json"


def _answer_file(data: Path) -> Path:
    return data / "replace" / "answer.json"
