"""Agents of a mesh with an uplink: which way a message takes, and what its originator learns (M1, M4, M6, M13)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from bundles import revocations
from bundles.receipt import Role
from edge.agent import way
from edge.agent.agent import Agent
from edge.agent.control import in_json
from edge.agent.settings import AgentSettings
from edge.enrol import identity_files
from tests.unit.bundles import keys
from tests.unit.edge.agent.agent_harness import HOST
from tests.unit.edge.agent.test_agent import QUICKLY, ask, complete
from tests.unit.edge.agent.test_mesh_agent import NOW_S, linked, member, traced
from tests.unit.edge.uplink.fake_platform import FakePlatform
from tests.unit.edge.uplink.http_platform import http_platform

NOWHERE = f"http://{HOST}:1"


class Network:
    """An agent's way to the platform, which the test cuts and restores: connections break while it is cut."""

    def __init__(self, *, is_up: bool) -> None:
        self.is_up = is_up

    @contextlib.asynccontextmanager
    async def to(self, platform: FakePlatform, agent: str) -> AsyncIterator[str]:
        async with http_platform(platform, agent, lambda _, answer: answer if self.is_up else b"") as url:
            yield url


def with_uplink(directory: Path, name: str, urls: Iterable[str], mesh: dict[str, Any] | None = None) -> AgentSettings:
    """It knows the gateway's certificate."""
    bearers = [{"name": f"bearer-{at}", "url": url, "priority": at} for at, url in enumerate(urls)]
    uplink = {"enabled": True, "bearers": bearers, "good_to_come_up": 1, "retry_most_s": 1.0}
    found = member(directory, name, mesh=mesh, uplink=uplink)
    gateway = keys.certificate("gateway", roles={Role.GATEWAY}, now_s=NOW_S)
    certificate = keys.certificate(name, now_s=NOW_S)
    identity_files.save(directory / "identity", certificate, keys.AUTHORITY, [gateway], revocations.NONE)
    return found


async def bundle_of(found: AgentSettings, identifier: str) -> str:
    """The id under which the platform knows the message."""
    steps = await ask(found, "trace", id=identifier)
    return str(steps[0]["detail"].rpartition(" ")[2])


def test_a_message_goes_at_once_over_whichever_bearer_is_up(tmp_path: Path) -> None:
    """M1, M4: and the application learns it."""

    async def run() -> None:
        platform = FakePlatform()
        async with Network(is_up=True).to(platform, "a") as url:
            found = with_uplink(tmp_path / "a", "a", [NOWHERE, url])
            async with Agent(found, backoff=QUICKLY):
                sent = await ask(found, "send", to="fresh/1", content=in_json(b"text"))
                steps = await traced(found, sent, way.ACKNOWLEDGED)
                assert steps[0] == ("file", way.ACCEPTED)
                assert platform.taken == {await bundle_of(found, sent): 1}
                bearers = (await ask(found, "status"))["bearers"]
                assert {name: one["is_up"] for name, one in bearers.items()} == {"bearer-0": False, "bearer-1": True}

    complete(run())


@pytest.mark.parametrize("is_delivered", [True, False], ids=["delivered by a peer", "not yet"])
def test_who_comes_back_online_finds_out_what_became_of_its_message(is_delivered: bool, tmp_path: Path) -> None:
    """M6, M13: A hands a copy to C and goes away. C delivers it, or never comes to where a gateway is; it does not meet
    A again. A learns of the delivery from the platform, or delivers and reports that; either way the platform gets the
    message once, A's application learns it, A keeps nothing, and the record is retired."""

    async def run() -> None:
        platform, near, far = FakePlatform(), Network(is_up=False), Network(is_up=False)
        async with near.to(platform, "a") as url_of_a, far.to(platform, "c") as url_of_c:
            carrier = with_uplink(tmp_path / "c", "c", [url_of_c])
            async with Agent(carrier, backoff=QUICKLY) as c:
                found = with_uplink(tmp_path / "a", "a", [url_of_a], linked(c))
                async with Agent(found, backoff=QUICKLY):
                    sent = await ask(found, "send", to="fresh/1", content=in_json(b"text"))
                    await traced(found, sent, way.GIVEN)
                    bundle = await bundle_of(found, sent)
                if is_delivered:
                    far.is_up = True
                    await traced(carrier, bundle, way.ACKNOWLEDGED)
                    while bundle not in platform.delivered:
                        await asyncio.sleep(0.01)
            near.is_up = True
            async with Agent(found, backoff=QUICKLY):
                await traced(found, sent, way.ACKNOWLEDGED)
                while bundle not in platform.retired:
                    await asyncio.sleep(0.01)
                assert (await ask(found, "status"))["mesh"]["bundles"] == 0
            assert platform.taken == {bundle: 1}
            assert platform.delivered == {bundle: "c" if is_delivered else "a"}

    complete(run())
