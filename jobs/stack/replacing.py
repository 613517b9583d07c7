"""Replaces routers while they run, as requested by `waystation router replace` (R5).

The command submits a request (:mod:`jobs.stack.requests`); the process of `up` replaces one part after the other. If
`up` is killed, only `generations.json` counts, which changes once a candidate has become the part.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from jobs.errors import StackError
from jobs.stack import generations
from jobs.stack.part import Part
from jobs.stack.parts import announced
from jobs.stack.requests import Answer as Answer
from jobs.stack.requests import Answers, Requests, UpRequest
from jobs.stack.requests import forget as forget
from jobs.stack.rolling_replacement import RollingReplacement, Stage
from jobs.stack.supervisor import Supervisor
from schemas.readiness import alongside, ready_file

ALONGSIDE = ("--alongside",)


class Request(UpRequest, frozen=True, kw_only=True):
    """A request to replace routers."""

    roles: list[str]
    timeout_s: float


class RouterPart(NamedTuple):
    """A part that routes: its name and roles, and a function that makes it for a generation and a request."""

    name: str
    roles: list[str]
    make: Callable[[Request, int], Part]


_requests = Requests(Request, "routers")

ask = _requests.ask

answer_to = _requests.answer_to


class Replacing:
    """Handles requests for the supervisor, which calls it at each of its ticks. Raises OSError for what cannot be
    written now: the next call repeats it."""

    def __init__(self, data: Path, parts: Sequence[RouterPart]) -> None:
        self._data = data
        self._parts = parts
        self._answers = Answers(_requests, data)
        self._request: Request | None = None
        self._lines: list[str] = []
        self._waiting: list[RouterPart] = []
        self._now: tuple[RouterPart, int, RollingReplacement] | None = None

    def __call__(self, supervisor: Supervisor) -> None:
        self._answers.catch_up()
        if self._request is None:
            self._take_up(supervisor)
        if self._request and self._now is None:
            self._next(supervisor, self._request)
        if self._request and self._now:
            self._look(self._request, *self._now)

    def _take_up(self, supervisor: Supervisor) -> None:
        if not supervisor.ready or not (request := _requests.next(self._data)):
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
        except StackError as error:
            self._over(f"{part.name} was not replaced: {error}")
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
        self._answer(self._request, over=False, error=None)

    def _over(self, error: str | None) -> None:
        request, self._request, self._waiting = self._request, None, []
        self._answer(request, over=True, error=error)

    def _answer(self, request: Request | None, over: bool, error: str | None) -> None:
        assert request is not None
        self._answers.give(Answer(id=request.id, lines=[*self._lines], over=over, error=error))


def _has_announced(data: Path, name: str) -> bool:
    return announced(data, name) is not None
