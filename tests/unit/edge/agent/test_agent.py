"""Two agents and a gateway: mail and files there, and reports back (M1, M2, M16, M20, M21)."""

import asyncio
import email
import smtplib
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from edge.agent import control, way
from edge.agent.agent import Agent
from edge.agent.envelope import Mail
from edge.agent.errors import AgentNotRunning, ControlError, ListenerError
from edge.agent.settings import AgentSettings
from edge.client.client import Client
from edge.client.errors import StoreInUse
from edge.reconnect import FullJitter
from schemas import password_file
from tests.faithful_client import eventually
from tests.unit.edge.agent.agent_harness import HOST, Clock, StockServer, relay_store, settings, submit
from tests.unit.gateway.host.quic_client import trust
from tests.unit.gateway.host.socket_gateway import SocketGateway

QUICKLY = FullJitter(0.01, 0.02)
NOBODY = f"mqtt://{HOST}:1"
MAIL = b"Subject: x\r\nMessage-ID: <1@a>\r\n\r\n.dots\r\n..\r\n\xc3\xbc\r\n"


def complete(run: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(run, 30))


def url_of(gateway: SocketGateway) -> str:
    return f"mqtt://{HOST}:{gateway.mqtt_port}"


def device(directory: Path, url: str, name: str = "a", **submission: Any) -> AgentSettings:
    """An agent that takes mail for b.example, and relays nothing."""
    return settings(
        directory,
        client_id=name,
        platform={"connect_points": [url]},
        smtp={
            "routes": {"b.example": f"{name}-far"},
            "submission": {"enabled": True, "port": 0, "hostname": "agent", **submission},
        },
    )


def office(directory: Path, url: str, server: StockServer, name: str = "a") -> AgentSettings:
    """The agent that relays to b.example."""
    return settings(
        directory,
        client_id=f"{name}-far",
        platform={"connect_points": [url]},
        smtp={
            "routes": {"a.example": name},
            "relay": {"enabled": True, "host": HOST, "port": server.port, "domains": ["b.example"], "hostname": "far"},
        },
    )


def agent(found: AgentSettings) -> Agent:
    return Agent(found, backoff=QUICKLY)


async def ask(found: AgentSettings, command: str, **request: Any) -> Any:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, lambda: control.ask(Path(found.store.directory), command, **request))


def test_status_names_each_way_that_failed_once_in_one_line(tmp_path: Path) -> None:
    async def run() -> None:
        found = device(tmp_path, NOBODY)
        async with agent(found):
            while not (problem := (await ask(found, "status"))["problem"]):
                await asyncio.sleep(0)
        assert problem.startswith(f"no gateway could be reached; 2 attempts failed: {NOBODY}: ")
        assert problem.count(NOBODY) == 1
        assert "\n" not in problem

    complete(run())


def test_mail_waits_for_the_network_and_arrives_as_it_was(gateway: SocketGateway, tmp_path: Path) -> None:
    async def run() -> None:
        async with StockServer() as server:
            away = device(tmp_path / "a", NOBODY)
            async with agent(away) as first:
                assert await submit(first.submission_port, "ann@a.example", ["bob@b.example"], MAIL) == {}
                assert (await ask(away, "status"))["outbox"]["messages"] == 1
            near, far = device(tmp_path / "a", url_of(gateway)), office(tmp_path / "far", url_of(gateway), server)
            async with agent(far) as second:
                await second.connected()  # from now on the platform keeps what is for it
            async with agent(near), agent(far):
                await eventually(lambda: len(server.taken) == 1, "the mail arrives")
                assert server.taken == [("ann@a.example", ["bob@b.example"], MAIL)]
                [identifier] = {step["id"] for step in await ask(near, "log", count=50)}

                async def steps(there: AgentSettings, last: str) -> list[str]:
                    while True:
                        found = [step["event"] for step in await ask(there, "trace", id=identifier)]
                        if found[-1] == last:
                            return found
                        await asyncio.sleep(0.01)

                assert await steps(near, way.ACKNOWLEDGED) == [way.ACCEPTED, way.HANDED_OVER, way.ACKNOWLEDGED]
                assert await steps(far, way.RELAYED) == [way.RECEIVED, way.SENDING, way.RELAYED]
                with pytest.raises(ControlError, match="no message"):
                    await ask(near, "trace", id="x")

    complete(run())


def test_a_refusal_comes_back_as_a_report(gateway: SocketGateway, tmp_path: Path) -> None:
    """The way back is the same: far agent, platform, near agent, mail server at home (M21)."""

    async def run() -> None:
        async with StockServer() as server, StockServer() as home:
            server.rcpt = lambda _: "550 5.1.1 no such user"
            near = device(tmp_path / "a", url_of(gateway), "r")
            relay = {"enabled": True, "host": HOST, "port": home.port, "domains": ["a.example"]}
            near = settings(
                tmp_path / "a",
                client_id="r",
                platform={"connect_points": [url_of(gateway)]},
                smtp={
                    "routes": {"b.example": "r-far"},
                    "submission": {"enabled": True, "port": 0, "hostname": "agent"},
                    "relay": relay,
                },
            )
            far = office(tmp_path / "far", url_of(gateway), server, "r")
            async with agent(near) as first, agent(far) as second:
                await asyncio.gather(first.connected(), second.connected())
                await submit(first.submission_port, "ann@a.example", ["bob@b.example"], MAIL)
                await eventually(lambda: len(home.taken) == 1, "the report arrives")
                # A mail from the null sender is refused too: there is no report about it, and so no loop.
                await submit(first.submission_port, "", ["bob@b.example"], MAIL)
                await submit(first.submission_port, "ann@a.example", ["carl@b.example"], MAIL)
                await eventually(lambda: len(home.taken) == 2, "the second report arrives")
            assert [sender for sender, _, _ in home.taken] == ["", ""]
            report = email.message_from_bytes(home.taken[0][2])
            assert report.get_content_type() == "multipart/report"
            assert "bob@b.example" in str(report.get_payload(1))
            assert "5.1.1" in str(report.get_payload(1))
            assert "carl@b.example" in str(email.message_from_bytes(home.taken[1][2]).get_payload(1))

    complete(run())


def test_a_mail_that_expires_here_is_reported(tmp_path: Path) -> None:
    async def run() -> None:
        async with StockServer() as home:
            time_s = [0.0]
            relay = {"enabled": True, "host": HOST, "port": home.port, "domains": ["a.example"]}
            found = settings(
                tmp_path / "a",
                platform={"connect_points": [NOBODY]},
                smtp={
                    "routes": {"b.example": "far"},
                    "submission": {"enabled": True, "port": 0, "hostname": "agent"},
                    "relay": relay,
                },
            )
            async with Agent(found, backoff=QUICKLY, running_s=lambda: time_s[0]) as one:
                await submit(one.submission_port, "ann@a.example", ["bob@b.example"], MAIL)
                time_s[0] += found.store.lifetime_s + 1
                await eventually(lambda: len(home.taken) == 1, "the report arrives")
            status = str(email.message_from_bytes(home.taken[0][2]).get_payload(1))
            assert "4.4.7" in status

    complete(run())


def test_what_is_not_taken_gets_its_code(tmp_path: Path) -> None:
    async def run() -> None:
        found = device(tmp_path / "a", NOBODY, message_bytes=2_000, recipients=2, line_bytes=1_001)
        found = settings(
            tmp_path / "a",
            platform={"connect_points": [NOBODY]},
            store={"directory": str(tmp_path / "a"), "messages": 1},
            smtp={
                "routes": {"b.example": "far"},
                "submission": {
                    "enabled": True,
                    "port": 0,
                    "hostname": "agent",
                    "message_bytes": 2_000,
                    "recipients": 2,
                    "line_bytes": 1_001,
                    "connections": 1,
                },
            },
        )
        async with agent(found) as one:
            port = one.submission_port

            async def code(recipients: list[str], content: bytes, sender: str = "ann@a.example") -> int:
                error = await submit(port, sender, recipients, content)
                await eventually(lambda: one._submission is not None and one._submission.connections == 0, "it ends")
                if isinstance(error, smtplib.SMTPRecipientsRefused):
                    return next(iter(error.recipients.values()))[0]
                if isinstance(error, dict):
                    return next(iter(error.values()))[0] if error else 250
                return int(error.smtp_code)

            assert await code(["bob@elsewhere.example"], MAIL) == 550
            assert await code(["bob@b.example"], b"\r\n".join([b"x" * 500] * 5)) == 552
            assert await code(["bob@b.example"], b"x" * 1_500) == 500
            assert await code(["bob@b.example"], b"Received: x\r\n" * 51 + b"\r\nx") == 554
            assert await code(['"b <o> b"@b.example'], MAIL) == 553
            assert await code([f"{n}@b.example" for n in range(3)], MAIL) == 452
            assert await code(["bob@b.example"], MAIL) == 452  # the store is full
            assert (await ask(found, "status"))["outbox"]["messages"] == 1
            reader, writer = await asyncio.open_connection(HOST, port)
            await reader.readline()
            second, other = await asyncio.open_connection(HOST, port)
            assert (await second.readline()).startswith(b"421 ")
            other.close()
            writer.close()

    complete(run())


def test_authentication(tmp_path: Path) -> None:
    (tmp_path / "users").write_text(password_file.with_user("", "ann", password_file.hasher().hash("right")))

    def log_in(port: int, password: str) -> int:
        with smtplib.SMTP(HOST, port, timeout=20) as client:
            client.ehlo()
            try:
                client.login("ann", password)
            except smtplib.SMTPAuthenticationError as error:
                return int(error.smtp_code)
            return client.mail("ann@a.example")[0]

    async def run() -> None:
        found = device(tmp_path / "a", NOBODY, password_file=str(tmp_path / "users"))
        async with agent(found) as one:
            loop = asyncio.get_running_loop()
            assert await loop.run_in_executor(None, log_in, one.submission_port, "right") == 250
            assert await loop.run_in_executor(None, log_in, one.submission_port, "wrong") == 535
            refused = await submit(one.submission_port, "ann@a.example", ["bob@b.example"], MAIL)
            assert refused.smtp_code == 530

    complete(run())


def test_files_from_folder_to_folder(gateway: SocketGateway, tmp_path: Path) -> None:
    async def run() -> None:
        outbox, inbox = tmp_path / "out", tmp_path / "in"
        near = settings(
            tmp_path / "a",
            client_id="f",
            platform={"connect_points": [url_of(gateway)]},
            folders={"enabled": True, "outboxes": {str(outbox): "@f-far"}, "rescan_s": 0.02},
        )
        far = settings(
            tmp_path / "far",
            client_id="f-far",
            platform={"connect_points": [url_of(gateway)]},
            folders={"enabled": True, "inbox": str(inbox)},
        )
        async with agent(near) as first, agent(far) as second:
            await asyncio.gather(first.connected(), second.connected())
            (outbox / ".partial").write_bytes(b"no")
            (outbox / "too.tmp").write_bytes(b"no")
            (outbox / "link").symlink_to(tmp_path / "nowhere")
            (outbox / ".a").write_bytes(b"one\0")
            (outbox / ".a").rename(outbox / "a.bin")
            await eventually(lambda: len(list(inbox.glob("[!.]*"))) == 1, "the file arrives")
            [arrived] = inbox.glob("[!.]*")
            assert arrived.read_bytes() == b"one\0"
            await eventually(lambda: not (outbox / "a.bin").exists(), "the file is removed")
            assert {path.name for path in outbox.iterdir()} == {".partial", "too.tmp", "link"}
            identifier = await ask(near, "send", to="@f-far", name="", content=control.in_json(b"two"))
            await eventually(lambda: (inbox / identifier).exists(), "the message arrives")
            assert (inbox / identifier).read_bytes() == b"two"

    complete(run())


def test_what_no_agent_has_sent_is_refused_and_does_not_come_again(gateway: SocketGateway, tmp_path: Path) -> None:
    async def run() -> None:
        found = settings(tmp_path / "a", client_id="n", platform={"connect_points": [url_of(gateway)]})
        async with (
            agent(found) as one,
            Client(client_id="stranger", connect_points=[url_of(gateway)], backoff=QUICKLY) as stranger,
        ):
            await one.connected()
            await (await stranger.send("n", b"hello")).acknowledged
            while not (steps := await ask(found, "log", count=5)):
                await asyncio.sleep(0.01)
            assert [step["event"] for step in steps] == [way.REFUSED]
            assert "no envelope" in steps[0]["detail"]

    complete(run())


def test_one_agent_a_directory_and_none(tmp_path: Path) -> None:
    async def run() -> None:
        found = settings(tmp_path / "a", platform={"connect_points": [NOBODY]})
        with pytest.raises(AgentNotRunning, match="agent up"):
            await ask(found, "status")
        async with agent(found):
            assert (tmp_path / "a" / control.NAME).stat().st_mode & 0o077 == 0
            with pytest.raises(StoreInUse):
                async with agent(found):
                    raise AssertionError("two agents have one store")
            with pytest.raises(ControlError, match="does not know"):
                await ask(found, "nonsense")
            with pytest.raises(ControlError, match="from 1 to"):
                await ask(found, "log", count=0)
        with pytest.raises(AgentNotRunning):
            await ask(found, "status")
        taken = await asyncio.start_server(lambda *_: None, HOST, 0)
        port = taken.sockets[0].getsockname()[1]
        with pytest.raises(ListenerError, match=str(port)):
            async with agent(device(tmp_path / "b", NOBODY, port=port)):
                pass
        taken.close()

    complete(run())


def test_its_authorities_are_those_of_quic_too(tmp_path: Path) -> None:
    """G11: QUIC has a TLS of its own."""
    trusted = trust(tmp_path)

    async def run(port: int) -> None:
        platform = {"connect_points": [f"quic://localhost:{port}"], "ca_file": str(trusted.authority.file)}
        async with Agent(settings(tmp_path / "store", platform=platform), backoff=QUICKLY) as agent:
            await agent.connected()

    with SocketGateway(tmp_path / "gateway", tls=trusted.settings) as gateway:
        complete(run(gateway.quic_port))


@pytest.mark.parametrize("connack", [b"", b"\x20\x03\x00\x00\x00"])
def test_a_gateway_that_is_too_slow_counts_as_unreachable(tmp_path: Path, connack: bytes) -> None:
    """M3: one that does not answer CONNECT in time, and one that does not answer pings."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.write(connack)
        await reader.read()
        writer.close()

    async def run() -> None:
        async with await asyncio.start_server(serve, HOST, 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            times = {"connect_timeout_s": 0.1, "keep_alive_s": 1, "ping_timeout_s": 0.1, "reconnect_most_s": 0.1}
            platform = {"connect_points": [f"mqtt://{HOST}:{port}"], **times}
            async with Agent(settings(tmp_path / "store", platform=platform)):
                await eventually(lambda: connections > 2, "it is given up, and tried again")

    complete(run())


def test_what_waits_for_a_mail_server_is_shown_when_the_relay_is_off(tmp_path: Path) -> None:
    """M2: it is not sent, and not forgotten: when its lifetime is over its sender gets a report."""

    async def run() -> None:
        clock = Clock()
        store = relay_store(tmp_path / "relay", clock)
        store.add(Mail("0" * 32, "ann@a.example", ("bob@b.example",), MAIL), 100.0)
        store.close()
        route = {"smtp": {"routes": {"a.example": "far"}}}
        found = settings(tmp_path, client_id="a", platform={"connect_points": [NOBODY]}, **route)
        times: Any = {"wall_s": clock.wall_s, "running_s": clock.running_s}
        async with Agent(found, backoff=QUICKLY, **times):
            relay = (await ask(found, "status"))["relay"]
            assert (relay["messages"], relay["problem"]) == (1, "smtp.relay is off")
        clock.now_s += 101.0
        async with Agent(found, backoff=QUICKLY, **times):
            while (status := await ask(found, "status"))["relay"]["messages"]:
                await asyncio.sleep(0.01)
            assert status["outbox"]["messages"] == 1, "the report"
            events = [step["event"] for step in await ask(found, "trace", id="0" * 32)]
            assert events == [way.RECEIVED, way.EXPIRED, way.REPORTED]

    complete(run())
