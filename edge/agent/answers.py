"""What the agent answers on its control socket: `status`, `peers`, `log`, `trace`, `send` and `discard` (M20)."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from edge.agent import control
from edge.agent.control import Handler
from edge.agent.envelope import NAME_BYTES_MAX, File
from edge.agent.errors import ControlError
from edge.agent.inbox_folder import InboxFolder
from edge.agent.mailroom import Mailroom, new_id
from edge.agent.metrics import Steps, exposition
from edge.agent.platform import Platform
from edge.agent.relay import Relay
from edge.agent.relay_store import RelayStore
from edge.agent.settings import AgentSettings
from edge.agent.way import Step

if TYPE_CHECKING:
    from edge.agent.mqtt.standin import Standin
    from edge.agent.submission import Submission

if TYPE_CHECKING:
    from edge.agent.mesh.member import Member

LOG_MAX: Final = 10_000


class Answers:
    """The parts that are on; None for others. `on_thread`: see :class:`edge.agent.relay.Relay`. `left`: see
    :mod:`edge.agent.left_over`."""

    def __init__(
        self,
        settings: AgentSettings,
        on_thread: Callable[..., Awaitable[Any]],
        mailroom: Mailroom,
        inbox: InboxFolder,
        *,
        platform: Platform | None,
        member: "Member | None",
        submission: "Submission | None",
        relay: Relay | None,
        relay_store: RelayStore | None,
        standin: "Standin | None",
        left: Mapping[str, int],
    ) -> None:
        self._settings, self._on_thread, self._mailroom, self._inbox = settings, on_thread, mailroom, inbox
        self._platform, self._member, self._submission = platform, member, submission
        self._relay, self._relay_store, self._standin, self._left = relay, relay_store, standin, left

    def handlers(self) -> Mapping[str, Handler]:
        """By command."""
        return {
            "status": self._status,
            "peers": self._peers,
            "log": self._newest,
            "trace": self._trace,
            "send": self._send,
            "discard": self._discard,
        }

    async def metrics(self) -> bytes:
        """See :func:`edge.agent.metrics.exposition`."""
        return exposition(await self._status({}), await self._step_counts())

    async def _step_counts(self) -> Steps:
        found: Counter[tuple[str, str]] = Counter()
        if self._platform is not None:
            found.update(self._platform.store.step_counts)
        if self._member is not None:
            found.update(self._member.step_counts())
        for part in (self._inbox, self._relay_store):
            if part is not None:
                found.update(dict(part.file.log.counts))
        if self._standin is not None:
            found.update(await self._standin.step_counts())
        return found

    async def _status(self, _: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {"client_id": self._settings.client_id}
        if self._platform is not None:
            found |= self._platform.status()
        if self._member is not None:
            found |= self._member.status()
        if self._submission is not None:
            address = f"{self._settings.smtp.submission.host}:{self._submission.port}"
            found["submission"] = {"address": address, "connections": self._submission.connections}
        if self._relay is not None and self._relay_store is not None:
            found["relay"] = {**await self._on_thread(self._relay_store.status), "problem": self._relay.last_problem}
        if self._standin is not None:
            found |= await self._standin.status()
        if self._left:
            found["turned_off"] = {**self._left, "problem": "these messages wait for parts that are off"}
        return found

    async def _peers(self, _: dict[str, Any]) -> list[Any]:
        if self._member is None:
            raise ControlError("the mesh is off: set mesh.enabled = true in the agent's settings")
        return list(self._member.peers())

    async def _newest(self, request: dict[str, Any]) -> list[Step]:
        count = request.get("count")
        if not isinstance(count, int) or not 0 < count <= LOG_MAX:
            raise ControlError(f"the number of entries must be from 1 to {LOG_MAX}")
        return (await self._steps("newest", count))[-count:]

    async def _trace(self, request: dict[str, Any]) -> list[Step]:
        identifier = str(request.get("id"))
        names = [identifier] if self._member is None else await self._member.names_of(identifier)
        found = [step for name in names for step in await self._steps("steps_of", name)]
        if not found:
            raise ControlError("the log has no message with this id: it is unknown here, or older than the log")
        return sorted(found, key=lambda step: step.at_s)

    async def _steps(self, method: str, argument: Any) -> list[Step]:
        """From all parts, in order of time."""
        found: list[Step] = []
        if self._platform is not None:
            found += await self._platform.steps(method, argument)
        if self._member is not None:
            found += await self._member.steps(method, argument)
        for part in (self._inbox, self._relay_store):
            if part is not None:
                found += await self._on_thread(getattr(part.file, method), argument)
        if self._standin is not None:
            found += await self._standin.steps(method, argument)
        return sorted(found, key=lambda step: step.at_s)

    async def _send(self, request: dict[str, Any]) -> str:
        """Sends a text or a file to a topic, or to an agent's inbox (`@client-id`); returns its id."""
        name = str(request.get("name", "")).encode()[:NAME_BYTES_MAX].decode(errors="ignore")
        file = File(new_id(), name, control.from_json(request.get("content", "")))
        await self._mailroom.send_file(str(request.get("to", "")), file)
        return file.id

    async def _discard(self, request: dict[str, Any]) -> int:
        """Removes what waits for a part that is off; how many messages."""
        if request.get("part") != "broker":
            raise ControlError("only what waits for `broker` can be discarded")
        return 0 if self._standin is None else await self._standin.discard_for_broker()
