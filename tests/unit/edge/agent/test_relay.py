"""The relay against a stock server, and killed at every step: nothing is lost, little is repeated (M16, M21, M20)."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from edge.agent import way
from edge.agent.courier import SmtpCourier, stuffed
from edge.agent.dsn import Failure
from edge.agent.envelope import Mail
from edge.agent.relay import Relay
from edge.agent.relay_decisions import Attempt, Reply
from edge.agent.relay_store import RelayStore
from edge.agent.routes import Routes
from edge.agent.settings import RelaySettings
from edge.client.errors import StoreFull
from edge.client.store_clock import DOWN_MOST_S
from tests.mosquitto import free_port
from tests.unit.edge.agent.agent_harness import HOST, Clock, StockServer, events, inline, relay_store

CONTENT = b"Subject: x\r\nMessage-ID: <1@a>\r\n\r\nhello\r\n"
MAIL = Mail("0" * 31 + "1", "ann@a.example", ("bob@b.example",), CONTENT)
TWO = Mail("0" * 31 + "2", "ann@a.example", ("bob@b.example", "eve@b.example"), CONTENT)


class Rig:
    """A relay with its store, as one process has them; `told` are the failures that senders learnt of."""

    def __init__(self, path: Path, port: int, clock: Clock, **options: Any) -> None:
        fixed = {"enabled": True, "host": HOST, "port": port, "domains": ["b.example"], "hostname": "agent.example"}
        self.settings = RelaySettings(**(fixed | options))
        self.clock = clock
        self.store = relay_store(path, clock)
        self.told: list[tuple[Mail, list[Failure]]] = []
        courier = SmtpCourier.of(self.settings)
        self.relay = Relay(self.store, courier, self.settings, Routes({}, ["b.example"]), inline, self._report)

    async def _report(self, mail: Mail, failures: list[Failure]) -> str:
        self.told.append((mail, failures))
        return "told"

    async def steps(self) -> None:
        while await self.relay.step():
            pass


def complete(run: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(run, 60))


def test_relayed_once_and_repetitions_are_recognised(tmp_path: Path) -> None:
    async def run() -> None:
        async with StockServer() as server:
            rig = Rig(tmp_path / "relay", server.port, Clock())
            assert await rig.relay.take(TWO)
            await rig.steps()
            assert not await rig.relay.take(TWO)
            await rig.steps()
            assert server.taken == [("ann@a.example", ["bob@b.example", "eve@b.example"], CONTENT)]
            assert rig.store.status() == {"messages": 0, "bytes": 0, "delivered_in_all": 2, "repeated_in_all": 1}
            expected = [way.RECEIVED, way.SENDING, way.RELAYED, way.RELAYED, way.REPEATED]
            assert events(rig.store.file.steps_of(TWO.id)) == expected
            rig.store.close()

    complete(run())


@pytest.mark.parametrize(
    "content",
    [
        b"\r\n",
        b"S: x\r\n\r\n.\r\n..\r\n.dot\r\n\r\n.\r\n",
        b"S: x\r\n\r\n" + b"x" * 100_000 + b"\r\n",
        "S: ü\r\n\r\n€\r\n".encode(),
        b"S: x\r\n\r\n\xff\x00\x80\r\n",
    ],
)
def test_the_content_arrives_byte_for_byte(tmp_path: Path, content: bytes) -> None:
    async def run() -> None:
        async with StockServer() as server:
            rig = Rig(tmp_path / "relay", server.port, Clock())
            await rig.relay.take(Mail(MAIL.id, "ann@a.example", ("bjørn@b.example",), content, True))
            await rig.steps()
            assert server.taken == [("ann@a.example", ["bjørn@b.example"], content)]
            rig.store.close()

    complete(run())


def test_a_bare_line_end_cannot_end_a_mail() -> None:
    """What SMTP does not allow becomes CRLF, and smuggles no command."""
    assert stuffed(b"a\n.\nMAIL FROM:<x@y>\r.\r\nb") == b"a\r\n..\r\nMAIL FROM:<x@y>\r\n..\r\nb\r\n"
    assert stuffed(b"") == b""


def test_a_temporary_refusal_is_tried_again_with_growing_pauses(tmp_path: Path) -> None:
    async def run() -> None:
        async with StockServer() as server:
            clock = Clock()
            rig = Rig(tmp_path / "relay", server.port, clock, retry_first_s=10.0, retry_most_s=15.0)
            server.rcpt = lambda _: "451 4.2.1 later"
            await rig.relay.take(MAIL)
            await rig.steps()
            assert server.connections == 1
            for pause_s in (10.0, 15.0, 15.0):
                clock.now_s += pause_s - 1
                await rig.steps()
                before = server.connections
                clock.now_s += 1
                await rig.steps()
                assert server.connections == before + 1
            server.rcpt = lambda _: "250 OK"
            clock.now_s += 15
            await rig.steps()
            assert len(server.taken) == 1
            assert not rig.told
            rig.store.close()

    complete(run())


def test_each_recipient_has_a_result_of_its_own(tmp_path: Path) -> None:
    async def run() -> None:
        async with StockServer() as server:
            rig = Rig(tmp_path / "relay", server.port, Clock())
            server.rcpt = lambda address: "550 5.1.1 no such user" if address.startswith("eve") else "250 OK"
            await rig.relay.take(TWO)
            await rig.steps()
            assert server.taken == [("ann@a.example", ["bob@b.example"], CONTENT)]
            [(mail, failures)] = rig.told
            assert mail.id == TWO.id
            assert failures == [Failure("eve@b.example", "550 5.1.1 no such user", False, True)]
            assert rig.store.status()["messages"] == 0
            rig.store.close()

    complete(run())


def test_the_whole_mail_is_refused_after_data(tmp_path: Path) -> None:
    async def run() -> None:
        async with StockServer() as server:
            rig = Rig(tmp_path / "relay", server.port, Clock())
            server.data = lambda: "554 5.6.0 spam"
            await rig.relay.take(TWO)
            await rig.steps()
            assert [failure.reply for failure in rig.told[0][1]] == ["554 5.6.0 spam"] * 2
            rig.store.close()

    complete(run())


def test_nobody_listens_until_the_lifetime_ends(tmp_path: Path) -> None:
    """One attempt finds that; mails behind it wait too. Then senders are told."""

    async def run() -> None:
        clock = Clock()
        rig = Rig(tmp_path / "relay", free_port(), clock, lifetime_s=100.0)
        await rig.relay.take(MAIL)
        await rig.relay.take(TWO)
        await rig.steps()
        assert events(rig.store.file.steps_of(TWO.id)) == [way.RECEIVED]
        clock.now_s += 101
        await rig.steps()
        assert [len(failures) for _, failures in rig.told] == [1, 2]
        assert all(failure.is_expired for _, failures in rig.told for failure in failures)
        assert rig.store.status()["messages"] == 0
        rig.store.close()

    complete(run())


def test_a_mail_for_a_domain_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with StockServer() as server:
            rig = Rig(tmp_path / "relay", server.port, Clock())
            await rig.relay.take(Mail(MAIL.id, "ann@a.example", ("x@elsewhere.example",), CONTENT))
            await rig.steps()
            assert server.connections == 0
            assert rig.told[0][1][0].reply.startswith("550 5.7.1")
            rig.store.close()

    complete(run())


@pytest.mark.parametrize(("command", "option"), [("RCPT", "command_timeout_s"), ("DATA", "data_timeout_s")])
def test_a_server_that_hangs(tmp_path: Path, command: str, option: str) -> None:
    """Before the final dot the mail waits; after it nobody knows, so it is sent once more and then held."""

    async def run() -> None:
        async with StockServer() as server:
            clock = Clock()
            rig = Rig(tmp_path / "relay", server.port, clock, **{option: 0.05})
            server.hangs = command
            await rig.relay.take(MAIL)
            for _ in range(4):
                await rig.steps()
                clock.now_s += 4_000
            found = events(rig.store.file.steps_of(MAIL.id))
            if command == "RCPT":
                assert found == [way.RECEIVED] + [way.DEFERRED] * 4
                assert not server.taken
            else:
                once = [way.SENDING, way.DOUBTFUL]
                assert found == [way.RECEIVED, *once, way.DEFERRED, *once, way.HELD]
                assert [content for _, _, content in server.taken] == [CONTENT] * 2
                assert rig.store.status()["doubtful_in_all"] == 2
            rig.store.close()

    complete(run())


class Killed(Exception):
    """The process has ended."""


class KilledStore:
    """A store whose process is killed at the step with this number, before or after it is on disk."""

    def __init__(self, store: RelayStore, kill_at: int, before: bool) -> None:
        self._store, self._kill_at, self._before, self.steps = store, kill_at, before, 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in ("add", "sending", "changed", "reported"):
            return found

        def step(*arguments: Any) -> Any:
            self.steps += 1
            if self.steps == self._kill_at and self._before:
                raise Killed
            result = found(*arguments)
            if self.steps == self._kill_at:
                raise Killed
            return result

        return step


@pytest.mark.parametrize("doubtful", ["repeat", "hold"])
@pytest.mark.parametrize("before", [True, False], ids=["before the commit", "after the commit"])
def test_killed_at_every_step(tmp_path: Path, before: bool, doubtful: str) -> None:
    """Bob gets the mail, once or, if the kill came between the final dot and the record, twice or held; the sender
    learns that Eve does not."""

    async def one(kill_at: int) -> bool:
        async with StockServer() as server:
            server.rcpt = lambda address: "550 5.1.1 no" if address.startswith("eve") else "250 OK"
            clock, path = Clock(), tmp_path / f"relay-{kill_at}"
            told: set[str] = set()
            was_killed = False
            for life in range(2):
                rig = Rig(path, server.port, clock, doubtful=doubtful)
                killing: Any = KilledStore(rig.store, kill_at if life == 0 else 0, before)
                rig.relay._store = killing
                try:
                    await rig.relay.recover()
                    await rig.relay.take(TWO)  # the platform gives it again, as it was not acknowledged
                    await rig.steps()
                except Killed:
                    was_killed = True
                told |= {failure.address for _, failures in rig.told for failure in failures}
                if life == 1:
                    status = rig.store.status()
                    copies = len(server.taken)
                    doubts = status.get("doubtful_in_all", 0)
                    assert doubts <= 1
                    assert copies <= 1 + doubts
                    assert copies >= 1 or status["recipients_held"] == 1
                    assert told == {"eve@b.example"}
                    assert status["messages"] == (1 if doubts and doubtful == "hold" else 0)
                rig.store.close()
            return was_killed

    async def every() -> None:
        step = 1
        while await one(step):
            step += 1
        assert step > 4

    complete(every())


def test_limits_and_a_foreign_file(tmp_path: Path) -> None:
    store = relay_store(tmp_path / "relay", Clock(), messages=1)
    store.add(MAIL, 10)
    with pytest.raises(StoreFull, match="1 mails"):
        store.add(TWO, 10)
    store.close()
    assert (tmp_path / "relay").stat().st_mode & 0o077 == 0


class Scripted:
    """A courier that answers as it is told."""

    def __init__(self, *attempts: Attempt) -> None:
        self.attempts = list(attempts)

    async def deliver(self, mail: Mail, recipients: list[str], sending: Any) -> Attempt:
        return self.attempts.pop(0)


def test_setting_the_clock_ages_no_mail(tmp_path: Path) -> None:
    async def run() -> None:
        clock = Clock()
        rig = Rig(tmp_path / "relay", 1, clock, lifetime_s=1_000.0)
        rig.relay._courier = Scripted(Attempt({"bob@b.example": Reply(450, "later")}))
        clock.wall_s = lambda: 4e9  # type: ignore[method-assign]
        await rig.relay.take(MAIL)
        await rig.steps()
        assert not rig.told
        rig.store.close()

    complete(run())


def test_a_clock_that_leaps_while_nothing_runs_ages_mail_by_a_day(tmp_path: Path) -> None:
    """M2: a device without a battery for its clock takes a mail in 1970, and has the right time at the next start."""
    clock = Clock()
    clock.wall_s = lambda: 60.0  # type: ignore[method-assign]
    before = relay_store(tmp_path / "relay", clock)
    before.add(MAIL, 100.0)
    taken_s = before.now_s
    before.close()
    clock.wall_s = lambda: 1.7e9  # type: ignore[method-assign]
    after = relay_store(tmp_path / "relay", clock)
    assert after.now_s == pytest.approx(taken_s + DOWN_MOST_S)
    after.close()


def test_a_report_that_is_not_accepted_is_tried_again(tmp_path: Path) -> None:
    async def run() -> None:
        rig = Rig(tmp_path / "relay", 1, Clock())
        rig.relay._courier = Scripted(Attempt({"bob@b.example": Reply(550, "no")}))
        refusals = [StoreFull("full")]

        async def report(mail: Mail, failures: list[Failure]) -> str:
            if refusals:
                raise refusals.pop()
            return await rig._report(mail, failures)

        rig.relay._report = report
        await rig.relay.take(MAIL)
        await rig.steps()
        assert not rig.told
        await rig.steps()
        assert len(rig.told) == 1
        rig.store.close()

    complete(run())
