"""Restarts gateways while the others serve their shards, as requested by `waystation gateway replace` (R5).

The command first drains the gateway, and then submits a request (:mod:`jobs.stack.requests`); the process of `up`
restarts the part. A candidate alongside, as routers have, would be of no use: the drained gateway has nothing left that
the new process could take over from it, and both would write the same files of the spool.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from jobs.stack.part import Part
from jobs.stack.requests import Answer, Requests, UpRequest
from jobs.stack.restart import Restart
from jobs.stack.supervisor import Supervisor


class GatewayRequest(UpRequest, frozen=True, kw_only=True):
    """A request to restart the part `part`."""

    part: str


requests = Requests(GatewayRequest, "gateways", "gateway-")


class Restarting:
    """Handles requests for the supervisor, which calls it at each of its ticks. `parts` has the parts that may be
    restarted, and what makes each of them for a request."""

    def __init__(self, data: Path, parts: Mapping[str, Callable[[GatewayRequest], Part]]) -> None:
        self._data = data
        self._parts = parts
        self._going: tuple[GatewayRequest, Restart] | None = None

    def __call__(self, supervisor: Supervisor) -> None:
        if self._going is None:
            self._take_up(supervisor)
        elif self._going[1].is_over:
            (request, restart), self._going = self._going, None
            self._over(request, restart)

    def _take_up(self, supervisor: Supervisor) -> None:
        if not supervisor.ready or not (request := requests.next(self._data)):
            return
        if request.part not in self._parts:
            known = ", ".join(self._parts)
            self._answer(request, over=True, error=f"this stack has no part {request.part}; its gateways are {known}")
            return
        self._going = (request, supervisor.restart(self._parts[request.part](request)))
        self._answer(request, f"{request.part}: restarting")

    def _over(self, request: GatewayRequest, restart: Restart) -> None:
        lines, error = [f"{request.part}: restarting"], None
        if restart.error is None:
            lines.append(f"{request.part}: the new process is ready")
        else:
            why = f"the new process {restart.error}"
            error = f"{request.part} was not replaced, and its earlier version runs again: {why}"
        self._answer(request, *lines, over=True, error=error)

    def _answer(self, request: GatewayRequest, *lines: str, over: bool = False, error: str | None = None) -> None:
        requests.answer(self._data, Answer(id=request.id, lines=list(lines), over=over, error=error))
