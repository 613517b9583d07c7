"""A process with one agent of the mesh's demo, or several: `python -m jobs.demo.mesh_host FILE…`, the settings of each.

The agents are those of `waystation agent up`. Once all run, a line of JSON says on which port each takes links. The
process ends with its standard input, so also if the demo is killed.
"""

import asyncio
import contextlib
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from edge.agent.agent import Agent
from edge.agent.settings import load
from edge.reconnect import FullJitter
from schemas.errors import WaystationError

DIAL_FIRST_S, DIAL_MOST_S = 0.1, 0.8
"""Between two attempts to reach the platform, or the airport: an hour of flights takes about three seconds."""


class Ready(msgspec.Struct, frozen=True):
    """The line: the mesh's ports by client id."""

    ports: dict[str, int]


async def serve(files: Sequence[Path]) -> None:
    """Runs the agents until the standard input ends. Raises the error of the first agent that fails."""
    ends = asyncio.create_task(_end_of_input())
    async with contextlib.AsyncExitStack() as stack:
        agents = {}
        for file in files:
            settings = load(file)
            agent = Agent(settings, backoff=FullJitter(DIAL_FIRST_S, DIAL_MOST_S))
            agents[settings.client_id] = await stack.enter_async_context(agent)
        ready = Ready({name: agent.mesh_port for name, agent in agents.items()})
        sys.stdout.buffer.write(msgspec.json.encode(ready) + b"\n")
        sys.stdout.buffer.flush()
        running = [ends, *(asyncio.ensure_future(agent.ended()) for agent in agents.values())]
        done, others = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for task in others:
            task.cancel()
        for task in done:
            task.result()


async def _end_of_input() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(4_096):
        pass


def main() -> int:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    for name in ("waystation.agent", "waystation.client", "waystation.mesh", "waystation.uplink"):
        logging.getLogger(name).setLevel(logging.INFO)
    try:
        asyncio.run(serve([Path(argument) for argument in sys.argv[1:]]))
    except WaystationError as error:
        logging.getLogger("waystation.demo").error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
