"""Agents of a mesh in one process, without any platform: mail, files and MQTT between them, and what fails (M1, M2, M5,
M8, M15, M16, M17, M20, M21)."""

import asyncio
import base64
import email
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from bundles import content as content_format
from bundles import issuer, revocations, sealing
from bundles.bundle import encode, sign
from bundles.content import Content
from bundles.identity import private_pem
from edge.agent import way
from edge.agent.agent import Agent
from edge.agent.control import in_json
from edge.agent.envelope import FILE_TYPE, File
from edge.agent.errors import EnvelopeError
from edge.agent.mesh.member import Member
from edge.agent.mesh.renewal import CHECK_S, REFUSED_S, Renewal
from edge.agent.settings import AgentSettings
from edge.client.client import Client
from edge.client.errors import StoreError
from edge.client.message import IncomingMessage
from edge.enrol import identity_files
from edge.enrol.enrolment import HttpAnswer
from edge.enrol.errors import GatewayNotReached, IdentityFilesError
from edge.enrol.identity_files import Stored
from edge.enrol.private_files import make_directory, write
from edge.reconnect import FullJitter
from mqtt.packets import Publish
from schemas.enrolment import EnrolmentAnswer, RenewalRequest
from schemas.errors import SettingsError
from schemas.mesh_api import BUNDLE_TYPE, CERTIFICATE_PROPERTY, MeshState
from tests.faithful_client import eventually
from tests.unit.bundles import keys
from tests.unit.edge.agent.agent_harness import HOST, StockServer, settings, submit
from tests.unit.edge.agent.mqtt.test_mqtt_agent import Program
from tests.unit.edge.agent.test_agent import MAIL, QUICKLY, ask, complete, url_of
from tests.unit.gateway.host.socket_gateway import SocketGateway

NOW_S = time.time()
SUBMITS = {"routes": {"b.example": "b"}, "submission": {"enabled": True, "port": 0, "hostname": "a"}}


def enrolled(directory: Path, name: str, *others: str, now_s: float = NOW_S) -> None:
    """The identity of `name`, which knows the certificates of `others` already, as after a contact with them."""
    identity = directory / "identity"
    directory.mkdir(exist_ok=True)
    make_directory(identity)
    who = keys.identity(name, now_s=now_s)
    write(identity / "key.pem", private_pem(who.key))
    write(identity / "sealing-key.pem", private_pem(keys.sealing_key(name)))
    known = [keys.certificate(other, now_s=now_s) for other in others]
    identity_files.save(identity, who.certificate, keys.AUTHORITY, known, revocations.NONE)


def member(directory: Path, name: str, *known: str, mesh: dict[str, Any] | None = None, **tables: Any) -> AgentSettings:
    enrolled(directory, name, *known)
    return settings(directory, client_id=name, mesh={"enabled": True, "port": 0, **(mesh or {})}, **tables)


def linked(agent: Agent) -> dict[str, Any]:
    return {"peers": [f"{HOST}:{agent.mesh_port}"]}


async def traced(found: AgentSettings, identifier: str, *last: str) -> list[tuple[str, str]]:
    """The steps of a message, once the last ones are there."""
    while True:
        steps = [(step["part"], step["event"]) for step in await ask(found, "trace", id=identifier)]
        if set(last) <= {event for _, event in steps}:
            return steps
        await asyncio.sleep(0.01)


def test_mail_and_its_way(tmp_path: Path) -> None:
    """M1, M8, M15, M20: the id that SMTP returns is traceable at both ends, and so is the bundle's."""

    async def run() -> None:
        async with StockServer() as server:
            relay = {"enabled": True, "host": HOST, "port": server.port, "domains": ["b.example"], "hostname": "b"}
            far = member(tmp_path / "b", "b", smtp={"relay": relay})
            async with Agent(far, backoff=QUICKLY) as b:
                near = member(tmp_path / "a", "a", mesh=linked(b), smtp=SUBMITS)
                async with Agent(near, backoff=QUICKLY) as a:
                    await a.connected()
                    assert await submit(a.submission_port, "ann@a.example", ["bob@b.example"], MAIL) == {}
                    await eventually(lambda: len(server.taken) == 1, "the mail arrives")
                    assert server.taken == [("ann@a.example", ["bob@b.example"], MAIL)]
                    first = (await ask(near, "log", count=50))[0]
                    steps = await traced(near, first["id"], way.DELIVERED, way.GIVEN)
                    assert steps[0] == ("mail", way.ACCEPTED)
                    bundle = first["detail"].rpartition(" ")[2]
                    assert await traced(near, bundle, way.DELIVERED, way.GIVEN) == steps
                    there = await traced(far, first["id"], way.RELAYED, way.HANDED_OVER)
                    assert {("mesh", way.RECEIVED), ("relay", way.RECEIVED)} <= set(there)
                    assert [one["state"] for one in await ask(near, "peers")] == ["connected"]
                    status = await ask(near, "status")
                    assert (status["mesh"]["bundles"], status["mesh"]["peers"]) == (0, 1)
                    assert "connected" not in status

    complete(run())


def test_messages_of_mqtt_clients(tmp_path: Path) -> None:
    """M16, M21: with their properties, and what is left of their lifetime; and the way back."""

    async def run() -> None:
        def mqtt(to: str) -> dict[str, Any]:
            return {"routes": {"#": to}, "listener": {"enabled": True, "port": 0, "local_delivery": False}}

        async with Agent(member(tmp_path / "b", "b", mqtt=mqtt("@a")), backoff=QUICKLY) as b:
            near = member(tmp_path / "a", "a", mesh=linked(b), mqtt=mqtt("@b"))
            async with (
                Agent(near, backoff=QUICKLY) as a,
                Program(a.mqtt_port, "device") as device,
                Program(b.mqtt_port, "server") as server,
            ):
                await server.client.subscribe("#", qos=2)
                await device.client.subscribe("#", qos=2)
                properties = {"content_type": "text/plain", "user_property": [("a", "b")], "correlation_data": b"c"}
                expires = {**properties, "message_expiry_interval": 900}
                await device.client.publish("x/1", b"hello", 2, properties=properties)
                await device.client.publish("x/2", b"hello", 1, properties=expires)
                await eventually(lambda: len(server.got) == 2, "the messages arrive")
                [first, second] = server.got
                assert (first.topic, first.payload, first.properties) == ("x/1", b"hello", properties)
                assert 0 < second.properties["message_expiry_interval"] <= 900
                await server.client.publish("y", b"reply", 1)
                await eventually(lambda: len(device.got) == 1, "the reply arrives")

    complete(run())


def test_a_file_to_itself_and_one_that_is_too_large(tmp_path: Path) -> None:
    async def run() -> None:
        folders = {"enabled": True, "inbox": str(tmp_path / "in")}
        found = member(tmp_path / "a", "a", mesh={"bundle_bytes": 4_096}, folders=folders, smtp=SUBMITS)
        async with Agent(found, backoff=QUICKLY) as a:
            await ask(found, "send", to="@a", content=in_json(b"to me"))
            await eventually(
                lambda: [one.read_bytes() for one in (tmp_path / "in").glob("*")] == [b"to me"], "it comes"
            )
            error = await submit(a.submission_port, "ann@a.example", ["bob@b.example"], MAIL + b"x" * 5_000)
            assert error.smtp_code == 552

    complete(run())


def test_a_full_store_refuses(tmp_path: Path) -> None:
    """M2"""

    async def run() -> None:
        found = member(tmp_path / "a", "a", "b", mesh={"stored_bundles": 1}, smtp=SUBMITS)
        async with Agent(found, backoff=QUICKLY) as a:
            assert await submit(a.submission_port, "ann@a.example", ["bob@b.example"], MAIL) == {}
            error = await submit(a.submission_port, "ann@a.example", ["bob@b.example"], MAIL)
            assert error.smtp_code == 452

    complete(run())


@pytest.mark.parametrize("known", [("b",), ()], ids=["sealed", "its key never came"])
def test_a_mail_that_expires_is_reported(tmp_path: Path, known: Sequence[str]) -> None:
    """M2, M21: also by the next process; the report has the mail's header."""

    async def run() -> None:
        async with StockServer() as home:
            time_s = [0.0]
            relay = {"enabled": True, "host": HOST, "port": home.port, "domains": ["a.example"]}
            found = member(tmp_path / "a", "a", *known, smtp={**SUBMITS, "relay": relay})
            async with Agent(found, backoff=QUICKLY, running_s=lambda: time_s[0]) as a:
                await submit(a.submission_port, "ann@a.example", ["bob@b.example"], MAIL)
            async with Agent(found, backoff=QUICKLY, running_s=lambda: time_s[0]):
                time_s[0] += found.mesh.lifetime_s + 1
                await eventually(lambda: len(home.taken) == 1, "the report arrives")
            report = email.message_from_bytes(home.taken[0][2])
            assert "4.4.7" in str(report.get_payload(1))
            assert "Message-ID: <1@a>" in str(report.get_payload(2))

    complete(run())


def test_bundles_from_the_platform(tmp_path: Path) -> None:
    """A bundle in the inbox is durable before it is acknowledged; one that can never be taken is refused."""

    async def run() -> None:
        found, given = member(tmp_path / "b", "b", "a"), []

        async def take(message: IncomingMessage) -> None:
            given.append(message.payload)

        def message(payload: bytes) -> IncomingMessage:
            return IncomingMessage(Publish("@b", payload, 1), lambda _: None)

        async with Member(found, wall_s=time.time, running_s=time.monotonic, backoff=QUICKLY) as one:
            one.give_to(take)
            for wrong in (
                b"x",
                encode(keys.bundle(1, "a", destination="@c")),
                encode(keys.bundle(1, "z", destination="@b")),
            ):
                with pytest.raises(EnvelopeError, match="cannot be taken"):
                    await one.bundle_arrived(message(wrong))
            await one.bundle_arrived(message(encode(keys.bundle(1, "a", destination="@b"))))  # not readable: settled
            assert one.status()["mesh"]["unreadable"] == 1
        assert given == []

    complete(run())


def test_an_envelope_that_comes_by_way_of_the_platform(gateway: SocketGateway, tmp_path: Path) -> None:
    """M15, M21: B has the platform and no peer, and gets the originator's certificate with the bundle; one that comes
    twice goes to the folder once."""

    async def run() -> None:
        found = member(
            *(tmp_path / "b", "mesh-b"),
            platform={"connect_points": [url_of(gateway)]},
            folders={"enabled": True, "inbox": str(tmp_path / "in")},
        )
        file = File("0" * 32, "name", b"content")
        content = Content(file.content, FILE_TYPE, file.properties())
        header = keys.header(1, "a", "@mesh-b")
        sealed = sealing.seal(header, content_format.encode(content), keys.sealing_key("mesh-b").public_key())
        bundle = encode(sign(header, sealed, keys.key("a")))
        known = (CERTIFICATE_PROPERTY, base64.b64encode(keys.certificate("a", now_s=NOW_S).der).decode())
        sender = Client(client_id="mesh-sender", connect_points=[url_of(gateway)], backoff=QUICKLY)
        async with Agent(found, backoff=QUICKLY) as agent, sender:
            await agent.connected()
            for _ in range(2):
                await (
                    await sender.publish("@mesh-b", bundle, content_type=BUNDLE_TYPE, user_properties=[known])
                ).acknowledged
            await eventually(lambda: len(list((tmp_path / "in").glob("*"))) == 1, "the file has come")
            assert ("inbox", way.WRITTEN) in await traced(found, file.id, way.HANDED_OVER)
            assert (await ask(found, "status"))["connected"] is True

    complete(run())


def test_an_agent_needs_its_own_identity(tmp_path: Path) -> None:
    """M5"""

    async def run() -> None:
        (tmp_path / "a").mkdir()
        found = settings(tmp_path / "a", mesh={"enabled": True})
        with pytest.raises(IdentityFilesError, match="waystation agent enrol"):
            async with Agent(found):
                pass
        enrolled(tmp_path / "a", "z")
        with pytest.raises(SettingsError, match="that of z"):
            async with Agent(found):
                pass

    complete(run())


def test_the_certificate_is_renewed_when_it_is_due(tmp_path: Path) -> None:
    """M5: at the first gateway that answers; later if none does, or if one refuses. Used once the disk has space."""

    async def run() -> None:
        enrolled(tmp_path, "a")
        directory, now_s = tmp_path / "identity", [NOW_S]
        signs, used = issuer.Issuer(keys.AUTHORITY, keys.authority_key()), []
        authority = x509.load_pem_x509_certificate(keys.AUTHORITY.pem).public_bytes(Encoding.DER)
        status = 200

        async def away(path: str, body: bytes) -> HttpAnswer:
            raise GatewayNotReached("no network")

        async def without_enrolment(path: str, body: bytes) -> HttpAnswer:
            return HttpAnswer(404, b'{"detail": "ask another gateway"}')

        async def of_another_authority(path: str, body: bytes) -> HttpAnswer:
            return HttpAnswer(403, b'{"detail": "another authority"}')

        async def gateway(path: str, body: bytes) -> HttpAnswer:
            asked = msgspec.json.decode(body, type=RenewalRequest)
            made = signs.renew(asked.certificate, asked.request, asked.sealing_key, revocations.NONE, now_s[0])
            answer = EnrolmentAnswer(made.der, authority, MeshState([]))
            return HttpAnswer(status, msgspec.json.encode(answer))

        stored = identity_files.load(directory)
        renewal = Renewal(directory, stored, [away], used.append, lambda: now_s[0], FullJitter(0.0, 0.0))
        assert await renewal.step() == CHECK_S
        assert (used, renewal.problem) == ([], "")
        now_s[0] += 4 * 86_400
        assert await renewal.step() == 0.0
        assert renewal.problem == "no network"
        status = 403
        failures = [StoreError("the disk is full")]

        def use(one: Stored) -> None:
            if failures:
                raise failures.pop()
            used.append(one)

        posts = [away, without_enrolment, of_another_authority, gateway]
        renewal = Renewal(directory, stored, posts, use, lambda: now_s[0])
        assert await renewal.step() == REFUSED_S
        status = 200
        assert await renewal.step() == CHECK_S
        assert (used, renewal.problem) == ([], "the disk is full")
        assert await renewal.step() == CHECK_S
        assert (len(used), renewal.problem) == (1, "")
        assert used[0].identity.certificate.not_after_s > stored.identity.certificate.not_after_s

    complete(run())
