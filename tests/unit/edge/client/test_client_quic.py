"""The client library over QUIC: connect points, certificates, and a network that changes (G11, G13)."""

import asyncio
from collections import Counter
from pathlib import Path

from tests.unit.gateway.host.quic_client import Nat, run, trust, until
from tests.unit.gateway.host.socket_gateway import HOST, SocketGateway
from waystation import Client, QuicTls

NUMBER = 40


def test_a_client_whose_network_changes_stays_connected(tmp_path: Path) -> None:
    trusted = trust(tmp_path)

    async def scenario(port: int) -> None:
        nat = await Nat(port).open()
        client = Client(
            client_id="van-7",
            connect_points=[f"quic://{HOST}:{nat.port}"],
            quic=QuicTls(str(trusted.authority.file)),
            server_hostname="localhost",
            store=tmp_path / "outbox",
        )
        got: Counter[bytes] = Counter()

        async def receive() -> None:
            async for message in client.messages():
                got[message.payload] += 1

        async with client:
            receiving = asyncio.create_task(receive())
            await client.subscribe("vans/#", qos=2)
            for n in range(NUMBER):
                message = await client.publish("vans/7", b"%d" % n, qos=2)
                if n % 10 == 4:
                    await client.network_changed()
                elif n % 10 == 9:
                    await nat.rebind()
            await message.acknowledged
            await until(lambda: len(got) == NUMBER)
            assert client._bearer.connections == 1
        await receiving
        assert got == Counter({b"%d" % n: 1 for n in range(NUMBER)})
        nat.close()

    with SocketGateway(tmp_path / "gateway", tls=trusted.settings) as gateway:
        run(scenario(gateway.quic_port))
