"""Real clients before real sockets: who gets in, over what, as whom, and what it may do then (R11, G11)."""

import asyncio
import os
import socket
import ssl
import struct
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import jwt
import pytest
import uvloop
from paho.mqtt.enums import MQTTProtocolVersion

from harness.keys import Authority, public_pem, rsa_key
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import Connack, Connect
from schemas.password_file import with_user
from tests.integration.gateway.listener_harness import ListenerHarness, trusting
from tests.unit.gateway.access.test_passwords import hashed

Scenario = Callable[[ListenerHarness], Awaitable[None]]


def with_listeners(directory: Path, changes: str, scenario: Scenario) -> None:
    async def run() -> None:
        gateway = await ListenerHarness(directory, changes).open()
        try:
            await scenario(gateway)
        finally:
            await gateway.close()

    uvloop.run(run())


def password_file(directory: Path, **users: str) -> str:
    path, text = directory / "passwords", ""
    for user, password in users.items():
        text = with_user(text, user, hashed(password))
    path.write_text(text)
    return f"authentication.methods = ['password']\nauthentication.password.file = '{path}'\n"


def test_mosquitto_with_user_and_password(tmp_path: Path) -> None:
    """R11: MQTT 5 and 3.1.1; whoever is wrong is told the same, and counted."""

    async def scenario(gateway: ListenerHarness) -> None:
        for version in ("5", "311"):
            ended = await gateway.pub(
                "-V", version, "-u", "alice", "-P", "secret", "-t", "a", "-m", "hello", "-i", "al"
            )
            assert ended.status == 0, ended.said
            for shows in (("-u", "alice", "-P", "wrong"), ("-u", "nobody", "-P", "secret"), ("-u", "alice")):
                assert "assword" in (await gateway.pub("-V", version, *shows, "-t", "a", "-m", "no")).said
            assert "uthori" in (await gateway.pub("-V", version, "-t", "a", "-m", "no")).said
        assert len(gateway.harness.ids_of(b"hello")) == 2
        assert not gateway.harness.ids_of(b"no")
        await gateway.until(lambda: len(gateway.harness.presence("al")) == 4, "presence")
        assert {event.user for event in gateway.harness.presence("al")} == {"alice"}
        assert gateway.harness.node.counts["not_admitted_password"] == 6
        assert gateway.harness.node.counts["not_admitted_unidentified"] == 2
        assert gateway.server.counts["not_admitted"] == 8

    with_listeners(tmp_path, password_file(tmp_path, alice="secret"), scenario)


def test_waystation_publish_with_user_and_password(tmp_path: Path) -> None:
    """R11: `waystation publish --user`, the password from the environment; refused, it is one sentence."""

    async def scenario(gateway: ListenerHarness) -> None:
        async def publish(password: str) -> tuple[int | None, str]:
            where = ("--address", f"127.0.0.1:{gateway.port()}", "--user", "alice")
            program = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "jobs.cli.main", "publish", "a", password, *where),
                env={**os.environ, "WAYSTATION_PASSWORD": password},
                stderr=asyncio.subprocess.PIPE,
            )
            _, said = await program.communicate()
            return program.returncode, said.decode()

        assert await publish("secret") == (0, "")
        status, said = await publish("wrong")
        assert status == 1
        assert "refused the connection: BAD_USER_NAME_OR_PASSWORD" in said
        assert gateway.harness.ids_of(b"secret")

    with_listeners(tmp_path, password_file(tmp_path, alice="secret"), scenario)


def tls_settings(directory: Path, client_certificates: str = "no") -> tuple[Authority, str]:
    authority = Authority(directory)
    ours = authority.sign("localhost", file="server")
    return authority, (
        f"tls.certificate = '{ours.certificate}'\ntls.key = '{ours.key}'\ntls.client_ca = '{authority.file}'\n"
        f"tls.client_certificates = '{client_certificates}'\ntls.mqtts_port = 0\ntls.wss_port = 0\n"
    )


def test_mosquitto_with_a_client_certificate(tmp_path: Path) -> None:
    """R11: its common name is the user; without one, or with another authority's, nobody gets in."""
    authority, settings = tls_settings(tmp_path, "required")
    stranger = Authority(tmp_path, "stranger")

    async def scenario(gateway: ListenerHarness) -> None:
        def shows(authority: Authority, *names: str) -> tuple[str, ...]:
            signed = authority.sign(*names, file=f"{authority.file.stem}-client")
            return ("--cert", str(signed.certificate), "--key", str(signed.key))

        trust = ("--cafile", str(authority.file), "-t", "a", "-m")
        ended = await gateway.pub(*trust, "hello", *shows(authority, "device-7"), "-i", "d", listener="mqtts")
        assert ended.status == 0, ended.said
        assert {event.user for event in gateway.harness.presence("d")} == {"device-7"}
        assert (await gateway.pub(*trust, "no", *shows(stranger, "device-7"), listener="mqtts")).status != 0
        assert (await gateway.pub(*trust, "no", listener="mqtts")).status != 0
        assert "uthori" in (await gateway.pub(*trust, "no", *shows(authority, "one", "two"), listener="mqtts")).said
        assert "uthori" in (await gateway.pub("-t", "a", "-m", "no")).said  # not over TLS
        assert not gateway.harness.ids_of(b"no")

    with_listeners(tmp_path, settings + "authentication.methods = ['certificate']\n", scenario)


@pytest.mark.parametrize("listener", ["mqtts", "wss"])
def test_paho_over_tls(tmp_path: Path, listener: str) -> None:
    """G11: TCP and WebSocket; messages larger than a TLS record; optional certificates; TLS 1.1 is refused."""
    authority, settings = tls_settings(tmp_path, "optional")

    async def scenario(gateway: ListenerHarness) -> None:
        signed = authority.sign("carol")
        plain = trusting(authority.file)
        alice = gateway.client("a", user="alice", password="secret", tls=plain, websocket=listener == "wss")
        carol = gateway.client("c", tls=trusting(authority.file, *signed), websocket=listener == "wss")
        assert await alice.connect(gateway, listener) == "Success"
        assert await carol.connect(gateway, listener) == "Success"
        assert [gateway.harness.presence(name)[0].user for name in "ac"] == ["alice", "carol"]
        assert await alice.subscribe(gateway, "t/#") == "Granted QoS 1"
        carol.publish("t/x", "y" * 200_000)
        await gateway.until(lambda: alice.got, "the message")
        assert alice.got == [("t/x", b"y" * 200_000)]
        nobody = gateway.client("n", tls=plain, websocket=listener == "wss")
        assert await nobody.connect(gateway, listener) == "Not authorized"
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.load_verify_locations(authority.file)
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(ssl.SSLError):
            await asyncio.to_thread(handshake, gateway.port(listener), old)

    methods = password_file(tmp_path, alice="secret").replace("['password']", "['certificate', 'password']")
    with_listeners(tmp_path, settings + methods, scenario)


def handshake(port: int, context: ssl.SSLContext) -> str:
    """Serial number of the certificate that the listener shows."""
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        return str((secure.getpeercert() or {})["serialNumber"])


@pytest.mark.parametrize("listener", ["mqtts", "wss"])
def test_a_new_certificate_while_clients_stay_connected(tmp_path: Path, listener: str) -> None:
    """R11, G11: new connections get the new one; a broken pair changes nothing."""
    authority, settings = tls_settings(tmp_path)

    async def scenario(gateway: ListenerHarness) -> None:
        trust = trusting(authority.file)
        client = gateway.client("c", tls=trust, websocket=listener == "wss")
        assert await client.connect(gateway, listener) == "Success"
        first = await asyncio.to_thread(handshake, gateway.port(listener), trust)
        authority.sign("localhost", file="server")
        assert await asyncio.to_thread(handshake, gateway.port(listener), trust) == first
        await gateway.refresh()
        second = await asyncio.to_thread(handshake, gateway.port(listener), trust)
        assert second != first
        other = authority.sign("localhost", file="other")
        (tmp_path / "server.key").write_bytes(other.key.read_bytes())  # not the certificate's
        await gateway.refresh()
        assert await asyncio.to_thread(handshake, gateway.port(listener), trust) == second
        assert await client.subscribe(gateway, "still/#") == "Granted QoS 1"

    with_listeners(tmp_path, settings, scenario)


def test_another_authority_for_clients_counts_from_then_on(tmp_path: Path) -> None:
    """R11: also for clients that would resume a TLS session."""
    authority, settings = tls_settings(tmp_path, "required")
    signed = authority.sign("carol")

    async def scenario(gateway: ListenerHarness) -> None:
        shows = ("--cafile", str(tmp_path / "kept.pem"), "--cert", str(signed.certificate), "--key", str(signed.key))
        (tmp_path / "kept.pem").write_bytes(authority.file.read_bytes())
        assert (await gateway.pub(*shows, "-t", "a", "-m", "yes", listener="mqtts")).status == 0
        authority.file.write_bytes(Authority(tmp_path, "stranger").file.read_bytes())
        await gateway.refresh()
        assert (await gateway.pub(*shows, "-t", "a", "-m", "no", listener="mqtts")).status != 0
        assert not gateway.harness.ids_of(b"no")

    with_listeners(tmp_path, settings + "authentication.methods = ['certificate']\n", scenario)


def test_a_handshake_must_not_take_for_ever(tmp_path: Path) -> None:
    """R11: who connects and says nothing is let go."""
    _, settings = tls_settings(tmp_path)

    async def scenario(gateway: ListenerHarness) -> None:
        for listener in ("mqtts", "wss"):
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port(listener))
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await asyncio.wait_for(reader.readexactly(1), 20)
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port(listener))
            writer.write(b"\x10\x0f\x00\x04MQTT no TLS at all\r\n\r\n")
            await asyncio.wait_for(reader.read(), 20)
            writer.close()
        assert not gateway.server.connections

    with_listeners(tmp_path, settings + "tls.handshake_timeout_s = 0.3\n", scenario)


def test_a_token_lets_in_until_it_expires(tmp_path: Path) -> None:
    """R11: the connection ends with 0x87, and the token is no good any more."""
    keys = tmp_path / "keys.pem"
    keys.write_bytes(public_pem(rsa_key()))

    async def scenario(gateway: ListenerHarness) -> None:
        now = gateway.clock()

        def token(**claims: object) -> str:
            return jwt.encode({"sub": "alice", **claims}, rsa_key(), "RS256")

        assert "assword" in (await gateway.pub("-u", "x", "-P", token(exp=now - 60), "-t", "a", "-m", "no")).said
        assert "assword" in (await gateway.pub("-u", "x", "-P", token(), "-t", "a", "-m", "no")).said
        long = gateway.client("long", user="", password=token(exp=now + 7200))
        short = gateway.client("short", user="ignored", password=token(exp=now + 3600))
        assert await long.connect(gateway) == "Success"
        assert await short.connect(gateway) == "Success"
        gateway.ahead_s = 3600
        await gateway.until(lambda: short.is_gone, "the end of the token's time")
        assert short.disconnect_code == "Not authorized"
        assert not long.is_gone
        await gateway.until(lambda: len(gateway.harness.presence("short")) == 2, "presence")
        assert [(event.event, event.reason, event.user) for event in gateway.harness.presence("short")] == [
            ("connected", "", "alice"),
            ("lost", "not_authorized", "alice"),
        ]

    settings = (
        f"authentication.methods = ['jwt']\nauthentication.jwt.keys = '{keys}'\nauthentication.jwt.leeway_s = 0.0\n"
    )
    with_listeners(tmp_path, settings, scenario)


ACL = """
[[rules]]
publish.allow = ["own/%u/#"]
subscribe.allow = ["own/%u/#", "open/#"]
"""


def test_rules_by_topic_and_their_change_while_clients_are_connected(tmp_path: Path) -> None:
    """R11, Q12: refusals are answered and counted; what a client is no longer allowed to get stops; offline too."""
    acl = tmp_path / "acl.toml"
    acl.write_text(ACL)
    settings = password_file(tmp_path, alice="secret", bob="other") + f"authorization.file = '{acl}'\n"

    async def scenario(gateway: ListenerHarness) -> None:
        counts = gateway.harness.node.counts
        shows = ("-u", "alice", "-P", "secret")
        assert (await gateway.pub(*shows, "-t", "own/alice/x", "-m", "yes")).status == 0
        assert "uthori" in (await gateway.pub(*shows, "-t", "own/bob/x", "-m", "no")).said
        ended = await gateway.pub("-V", "311", *shows, "-t", "own/bob/x", "-m", "no")  # 3.1.1 has no word for it
        assert gateway.server.counts["closed_not_authorized"] == 1, ended
        assert counts["publish_not_authorized"] == counts["refused_by_rule"] == 2
        bob = gateway.client("b", user="bob", password="other")
        away = gateway.client("away", user="bob", password="other")
        assert await bob.connect(gateway) == await away.connect(gateway, kept_s=60) == "Success"
        assert await bob.subscribe(gateway, "own/alice/#") == "Not authorized"
        assert await bob.subscribe(gateway, "#") == "Not authorized"
        assert counts["subscription_refused_not_authorized"] == 2
        assert await bob.subscribe(gateway, "open/+/news") == "Granted QoS 1"
        assert await bob.subscribe(gateway, "own/bob/#") == "Granted QoS 1"
        assert await away.subscribe(gateway, "open/#") == "Granted QoS 1"
        await asyncio.to_thread(away.leave)
        acl.write_text(ACL.replace("open/#", "other/#").replace("own/%u/#", "own/#"))
        await gateway.refresh()
        await gateway.until(lambda: counts["subscriptions_ended_by_rule"] == 2, "the end of both subscriptions")
        for topic in ("own/alice/open", "own/bob/x"):
            assert (await gateway.pub(*shows, "-t", topic, "-m", topic)).status == 0
        await gateway.until(lambda: bob.got, "what is still allowed")
        assert bob.got == [("own/bob/x", b"own/bob/x")]
        assert not bob.is_gone
        acl.write_text("broken")
        await gateway.refresh()
        assert (await gateway.pub(*shows, "-t", "own/bob/x", "-m", "still")).status == 0

    with_listeners(tmp_path, settings, scenario)


def test_users_change_while_others_stay_connected(tmp_path: Path) -> None:
    """R11: a new password counts at once, the earlier one no more, and connections stay."""
    settings = password_file(tmp_path, alice="secret")

    async def scenario(gateway: ListenerHarness) -> None:
        client = gateway.client("c", user="alice", password="secret")
        assert await client.connect(gateway) == "Success"
        password_file(tmp_path, alice="changed", bob="new")
        os.utime(tmp_path / "passwords", (1, 1))  # even if its time goes back
        await gateway.refresh()
        for user, password, status in (("alice", "changed", 0), ("bob", "new", 0)):
            assert (await gateway.pub("-u", user, "-P", password, "-t", "a", "-m", "x")).status == status
        assert "assword" in (await gateway.pub("-u", "alice", "-P", "secret", "-t", "a", "-m", "x")).said
        assert await client.subscribe(gateway, "a") == "Granted QoS 1"

    with_listeners(tmp_path, settings, scenario)


@pytest.mark.parametrize("version", [MQTTProtocolVersion.MQTTv5, MQTTProtocolVersion.MQTTv311])
def test_a_session_is_its_users(tmp_path: Path, version: MQTTProtocolVersion) -> None:
    """R11: nobody else takes it over, connected or not, with or without a clean start."""

    async def scenario(gateway: ListenerHarness) -> None:
        alice = gateway.client("same", user="alice", password="secret", version=version)
        bob = gateway.client("same", user="bob", password="other", version=version)
        assert await alice.connect(gateway) == "Success"
        assert await bob.connect(gateway) == "Not authorized"
        assert not alice.is_gone
        again = gateway.client("same", user="alice", password="secret", version=version)
        assert await again.connect(gateway) == "Success"
        assert gateway.harness.node.counts["not_admitted_other_user"] == 1

    with_listeners(tmp_path, password_file(tmp_path, alice="secret", bob="other"), scenario)


def test_enhanced_authentication_is_refused_in_so_many_words(tmp_path: Path) -> None:
    """R11; MQTT 5.0, 4.12: 0x8C, through a real socket."""

    async def scenario(gateway: ListenerHarness) -> None:
        asked = {"authentication_method": "SCRAM-SHA-256", "authentication_data": b"n,,"}
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port())
        writer.write(encode(Connect("c", 5, True, 0, properties=asked), 5))
        (answer,) = Decoder(1 << 20, 5).feed(await asyncio.wait_for(reader.read(), 20))
        assert isinstance(answer, Connack)
        assert answer.reason_code == 0x8C
        writer.close()

    with_listeners(tmp_path, "", scenario)


def test_a_client_that_goes_while_its_password_is_verified_leaves_nothing(tmp_path: Path) -> None:
    """R11, R12: a connection reset in the middle of it."""

    async def scenario(gateway: ListenerHarness) -> None:
        for _ in range(5):
            _, writer = await asyncio.open_connection("127.0.0.1", gateway.port())
            writer.write(encode(Connect("c", 5, True, 0, username="alice", password=b"wrong"), 5))
            await writer.drain()
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        await gateway.until(lambda: gateway.server.counts["connections_opened"] == 5, "all connections")
        await gateway.until(lambda: not gateway.server.connections, "their end")
        assert gateway.harness.home.session("c") is None

    with_listeners(tmp_path, password_file(tmp_path, alice="secret"), scenario)
