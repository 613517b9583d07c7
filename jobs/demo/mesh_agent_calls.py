"""Asks the agents of the mesh's demo over their control sockets, as `waystation agent …` does."""

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec

from edge.agent.control import ask, in_json
from edge.agent.way import Step
from jobs.demo.errors import DemoError
from jobs.demo.mesh_agents import MeshFiles
from jobs.demo.mesh_plan import agent_of
from schemas.errors import WaystationError

AT_A_TIME: Final = 16
LOG_MAX: Final = 10_000
"""Steps that an agent tells at once."""


class AgentCalls:
    """`ask` waits for its answer, so each call has a thread. Calls raise DemoError."""

    def __init__(self, files: MeshFiles) -> None:
        self._files = files
        self._threads = ThreadPoolExecutor(AT_A_TIME, "agents")

    def close(self) -> None:
        """What still waits for an answer is left alone."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def send(self, place: str, to: str, name: str, text: str) -> str:
        """The message's id, once the agent has it on disk. `to`: a topic, or @ and a client id."""
        return str(await self._ask(place, "send", to=to, name=name, content=in_json(text.encode())))

    async def status(self, place: str) -> dict[str, Any]:
        """As `waystation agent status --json`."""
        return dict(await self._ask(place, "status"))

    async def log(self, place: str) -> list[Step]:
        """The newest steps of all messages' ways."""
        return msgspec.convert(await self._ask(place, "log", count=LOG_MAX), list[Step])

    async def peers(self, place: str) -> list[str]:
        """The names of the agents that it is connected with."""
        return [peer["name"] for peer in await self._ask(place, "peers") if peer["state"] == "connected"]

    async def logs(self, places: Iterable[str]) -> dict[str, list[Step]]:
        """By client id."""
        wanted = list(places)
        found = await asyncio.gather(*(self.log(place) for place in wanted))
        return {agent_of(place): steps for place, steps in zip(wanted, found, strict=True)}

    async def statuses(self, places: Iterable[str]) -> dict[str, dict[str, Any]]:
        """By place."""
        wanted = list(places)
        return dict(zip(wanted, await asyncio.gather(*map(self.status, wanted)), strict=True))

    async def _ask(self, place: str, command: str, **request: Any) -> Any:
        def call() -> Any:
            try:
                return ask(self._files.store(place), command, **request)
            except WaystationError as error:
                raise DemoError(f"{agent_of(place)}, {command}: {error}") from error

        return await asyncio.get_running_loop().run_in_executor(self._threads, call)
