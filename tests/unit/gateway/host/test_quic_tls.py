"""Certificates over QUIC: the gateway's, renewed while clients stay connected, and those of clients (G11, R11)."""

import asyncio
import shutil
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from edge.errors import ConnectionLost, Unreachable
from edge.link import Address, QuicTls
from edge.mqtt_client import MqttClient
from gateway.host.quic_tls import QuicTls as GatewayTls
from gateway.host.quic_tls import _can_sign
from harness.keys import Authority
from mqtt.packets import Connect
from schemas.errors import SettingsError
from schemas.settings import process_settings
from tests.unit.gateway.host.quic_client import Trust, run, trust, until
from tests.unit.gateway.host.socket_gateway import HOST, SocketGateway


def client_of(client_id: str, port: int, authority: Authority, own: tuple[Path, Path] | None = None) -> MqttClient:
    certificate, key = (str(own[0]), str(own[1])) if own is not None else (None, None)
    return MqttClient(Address(HOST, port, quic=QuicTls(str(authority.file), certificate, key)), Connect(client_id))


def test_a_new_certificate_is_for_new_connections(tmp_path: Path) -> None:
    """A pair that does not match changes nothing."""
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    trusted, other = trust(tmp_path / "old"), Authority(tmp_path / "new", "other")
    renewed = other.sign("localhost")
    certificate, key = Path(trusted.settings["certificate"]), Path(trusted.settings["key"])

    async def scenario(gateway: SocketGateway) -> None:
        def refresh() -> None:
            asyncio.run_coroutine_threadsafe(gateway.quic.files.refresh(), gateway._loop).result(10)

        first = trusted.client("first", gateway.quic_port)
        await first.connect()
        shutil.copy(renewed.certificate, certificate)
        await asyncio.to_thread(refresh)
        second = trusted.client("second", gateway.quic_port)
        await second.connect()
        shutil.copy(renewed.key, key)
        await asyncio.to_thread(refresh)
        with pytest.raises(Unreachable, match="QUIC handshake failed"):
            await trusted.client("third", gateway.quic_port).connect()
        third = client_of("third", gateway.quic_port, other)
        await third.connect()
        for client in (first, second, third):
            await client.publish("t", b"x", 1)
            await client.disconnect()

    with SocketGateway(tmp_path, tls=trusted.settings) as gateway:
        run(scenario(gateway))


@pytest.mark.parametrize("how", ["required", "optional"])
def test_client_certificates(tmp_path: Path, how: str) -> None:
    """The common name is known; another authority's certificate is refused, and none at all if it is required."""
    trusted = trust(tmp_path, client_certificates=how)
    (tmp_path / "stranger").mkdir()
    stranger = Authority(tmp_path / "stranger", "stranger")

    async def scenario(gateway: SocketGateway, trusted: Trust) -> None:
        authority, port = trusted.authority, gateway.quic_port
        good = client_of("good", port, authority, authority.sign("device-7"))
        await good.connect()
        assert [t.certificate for t in gateway.server.transports] == ["device-7"]
        await good.disconnect()
        await until(lambda: not gateway.server.transports)
        unclear = client_of("unclear", port, authority, authority.sign("one", "two"))
        await unclear.connect()
        assert [t.certificate for t in gateway.server.transports] == [None]
        await unclear.disconnect()
        with pytest.raises((Unreachable, ConnectionLost)):  # the client's side of the handshake is done before
            await client_of("bad", port, authority, stranger.sign("device-7")).connect()
        await until(lambda: gateway.count("quic_handshakes_failed") == 1)
        without = client_of("without", port, authority)
        if how == "optional":
            await without.connect()
            await without.disconnect()
        else:
            with pytest.raises((Unreachable, ConnectionLost)):
                await without.connect()
            await until(lambda: gateway.count("quic_handshakes_failed") == 2)
        assert gateway.count("connections_opened") == (3 if how == "optional" else 2)

    with SocketGateway(tmp_path, tls=trusted.settings) as gateway:
        run(scenario(gateway, trusted))


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    """One clear error at the start, as for the other listeners."""
    trusted = trust(tmp_path)

    def opened(**files: str) -> None:
        gateway = process_settings({}).gateway
        GatewayTls(msgspec.structs.replace(gateway.tls, **files), gateway.limits)

    good = {name: trusted.settings[name] for name in ("certificate", "key")}
    opened(**good)
    with pytest.raises(SettingsError, match=r"gateway\.tls\.certificate"):
        opened(**good | {"certificate": str(tmp_path / "nowhere")})
    with pytest.raises(SettingsError, match=r"gateway\.tls\.key"):
        opened(**good | {"key": str(trusted.authority.file)})


def test_a_kind_of_key_that_quic_cannot_use() -> None:
    assert not _can_sign(ec.generate_private_key(ec.SECP521R1()))
    assert _can_sign(ec.generate_private_key(ec.SECP384R1()))
