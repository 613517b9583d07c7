"""Restarts gateways while the others serve their shards, and replaces the dispatcher, as requested by `waystation
gateway replace` (R1, R5).

The command first drains the gateway, and then submits a request (:mod:`jobs.stack.requests`); the process of `up`
restarts the part. A candidate alongside, as routers have, would be of no use: the drained gateway has nothing left that
the new process could take over from it, and both would write the same files of the spool. A new dispatcher runs
alongside the old one for a moment: it gets the listening sockets from it, so that no client is refused.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from jobs.errors import StackError
from jobs.stack.part import Part
from jobs.stack.requests import Answer, Answers, Requests, UpRequest
from jobs.stack.restart import Restart
from jobs.stack.rolling_replacement import RollingReplacement
from jobs.stack.supervisor import Supervisor
from schemas.readiness import ready_file


class GatewayRequest(UpRequest, frozen=True, kw_only=True):
    """A request to restart or replace the part `part`. `timeout_s`: how long a new process may take that runs alongside
    the old one."""

    part: str
    timeout_s: float = 120.0


_ALONGSIDE: Final = "{}: a new process takes over from the running one"

requests = Requests(GatewayRequest, "gateways", "gateway-")


class Restarting:
    """Handles requests for the supervisor, which calls it at each of its ticks. `parts` has the parts that may be
    restarted, and what makes each of them for a request. Raises OSError for what cannot be written now: the next call
    repeats it."""

    def __init__(self, data: Path, parts: Mapping[str, Callable[[GatewayRequest], Part]]) -> None:
        self._data = data
        self._parts = parts
        self._answers = Answers(requests, data)
        self._going: tuple[GatewayRequest, Restart | RollingReplacement] | None = None

    def __call__(self, supervisor: Supervisor) -> None:
        self._answers.catch_up()
        if self._going is None:
            self._take_up(supervisor)
        elif self._going[1].is_over:
            (request, change), self._going = self._going, None
            self._over(request, change)

    def _take_up(self, supervisor: Supervisor) -> None:
        if not supervisor.ready or not (request := requests.next(self._data)):
            return
        if request.part not in self._parts:
            known = ", ".join(self._parts)
            self._answer(request, over=True, error=f"this stack has no part {request.part}; its gateways are {known}")
            return
        part = self._parts[request.part](request)
        if not part.takes_over:
            self._going = (request, supervisor.restart(part))
            self._answer(request, f"{part.name}: restarting")
            return
        try:
            self._going = (request, self._replace(supervisor, part, request.timeout_s))
        except StackError as error:
            message = f"{part.name} was not replaced, and its earlier version runs: {error}"
            self._answer(request, over=True, error=message)
        else:
            self._answer(request, _ALONGSIDE.format(part.name))

    def _replace(self, supervisor: Supervisor, part: Part, timeout_s: float) -> RollingReplacement:
        """Of a part that takes over. Raises StackError."""
        ready_file(self._data, part.name).unlink(missing_ok=True)  # the running process has announced itself long ago
        return supervisor.replace(part, (), lambda: part.ready() is not None, timeout_s)

    def _over(self, request: GatewayRequest, change: Restart | RollingReplacement) -> None:
        part, error = request.part, None
        if isinstance(change, Restart):
            lines, why = [f"{part}: restarting"], f"the new process {change.error}"
        else:
            lines, why = [_ALONGSIDE.format(part)], f"{change.error}; read {self._data / 'logs' / part}.log"
        if change.error is None:
            lines.append(f"{part}: the new process is ready")
        else:
            again = " again" if isinstance(change, Restart) else ""
            error = f"{part} was not replaced, and its earlier version runs{again}: {why}"
        self._answer(request, *lines, over=True, error=error)

    def _answer(self, request: GatewayRequest, *lines: str, over: bool = False, error: str | None = None) -> None:
        self._answers.give(Answer(id=request.id, lines=list(lines), over=over, error=error))
