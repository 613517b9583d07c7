"""Which addresses are tried, and for how long (M5)."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edge.node.contacts import Contacts, Running
from edge.node.dialer import Address, Dialer
from edge.node.links import Links
from edge.reconnect import FullJitter
from tests.unit.gateway.shard.virtual_time import run

ONE, OTHER = ("10.0.0.1", 4660), ("10.0.0.2", 4660)


class Nobody:
    """Nobody is there, or `error` is raised first."""

    def __init__(self) -> None:
        self.tried: list[Address] = []
        self.error: Exception | None = None

    async def dial(self, host: str, port: int, on_name: Any) -> None:
        self.tried.append((host, port))
        error, self.error = self.error, None
        raise error or OSError("nobody is there")


def scenario(steps: Callable[[Dialer, Contacts], None], error: Exception | None = None) -> list[Address]:
    """What is tried after `steps`, each address once."""

    async def tried() -> list[Address]:
        links, contacts = Nobody(), Contacts("a")
        links.error = error
        dialer = Dialer("a", cast(Links, links), contacts, lambda: FullJitter(0.5, 1.0))
        dialer.keep(ONE)
        await asyncio.sleep(10.0)
        steps(dialer, contacts)
        links.tried.clear()
        await asyncio.sleep(10.0)
        await dialer.close()
        return sorted(set(links.tried))

    return run(tried())


def test_what_discovery_finds_is_tried_until_it_goes() -> None:
    def come(dialer: Dialer, _: Contacts) -> None:
        dialer.add(OTHER, "b")

    def come_and_go(dialer: Dialer, _: Contacts) -> None:
        dialer.add(OTHER, "b")
        dialer.remove(OTHER)

    assert scenario(come) == [ONE, OTHER]
    assert scenario(come_and_go) == [ONE]


def test_no_announcement_takes_a_peer_of_the_settings_away() -> None:
    """Anybody in the network can say that it has gone, or that it is an agent with which there is a contact."""

    def say_goodbye(dialer: Dialer, _: Contacts) -> None:
        dialer.add(ONE, "b")
        dialer.remove(ONE)

    def rename(dialer: Dialer, contacts: Contacts) -> None:
        there = SimpleNamespace(certificate=SimpleNamespace(name="x"), dialled=False)
        assert contacts.begin(cast(Running, there))
        dialer.add(ONE, "x")

    assert scenario(say_goodbye) == [ONE]
    assert scenario(rename) == [ONE]


def test_an_address_has_answered_once_an_agent_was_authenticated_there() -> None:
    """Until it is given up: a port that is open is no agent yet."""

    class Somebody:
        async def dial(self, host: str, port: int, on_name: "asyncio.Future[str]") -> None:
            if (host, port) == ONE:
                on_name.set_result("b")
            await asyncio.Event().wait()

    async def tried() -> list[bool]:
        dialer = Dialer("a", cast(Links, Somebody()), Contacts("a"), lambda: FullJitter(0.5, 1.0))
        for address in (ONE, OTHER):
            dialer.add(address, "b")
        await asyncio.sleep(10.0)
        found = [dialer.has_answered(ONE), dialer.has_answered(OTHER)]
        await dialer.close()
        return [*found, dialer.has_answered(ONE)]

    assert run(tried()) == [True, False, False]


def test_an_error_that_nobody_expects_ends_no_address(caplog: pytest.LogCaptureFixture) -> None:
    assert scenario(lambda *_: None, UnicodeError("label too long")) == [ONE]
    assert "label too long" in caplog.text
