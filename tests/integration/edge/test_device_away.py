"""A message for a device without any network: gateway, an agent with an uplink that meets the device, and back (M12,
M14, M15, M21). The gateway is in memory, with HTTP on a socket; nodes and uplink are the real ones."""

import asyncio
from pathlib import Path

from bundles.identity import Identity
from edge.agent.mesh.node_carrier import NodeCarrier
from edge.agent.mesh.node_holder import NodeHolder
from edge.uplink.assembly import deliverer
from edge.uplink.settings import BearerSettings, UplinkSettings
from tests.unit.bundles.keys import identity
from tests.unit.edge.node.node_host import Join, NodeHost, eventually
from tests.unit.gateway.http.http_harness import run, until
from tests.unit.gateway.mesh.test_carried_bundles import DEVICE, CarryingGateway


def test_a_message_reaches_a_device_without_network_and_the_receipt_comes_back(tmp_path: Path) -> None:
    """The device was a client of the gateway, and is away. It comes back later, and gets nothing twice."""

    async def scenario() -> None:
        gateway = await CarryingGateway(tmp_path / "gateway").start()
        device = await gateway.device(bundles=20)

        def who(name: str) -> Identity:
            return identity(name, now_s=gateway.clock())

        hosts = [NodeHost(name, tmp_path, who(name)) for name in ("carrier", DEVICE)]
        for host in hosts:
            host.wall_s = gateway.clock
        known = [who(name).certificate for name in ("agent", "carrier", DEVICE)]
        async with hosts[0].running(known[1:]) as node, hosts[1].running(known) as van:
            await Join(node, van).run(lambda: node.contacts.recent.names == [DEVICE])
            bearer = BearerSettings(name="lan", url=f"http://127.0.0.1:{gateway.port}")
            settings = UplinkSettings(enabled=True, bearers=[bearer], fetch=True, probe_s=0.1)
            holder, carrier = NodeHolder(node, "carrier"), NodeCarrier(node)
            uplink = deliverer(holder, settings, tls=None, secret=None, carrier=carrier, clock=lambda: node.now_s)
            task = asyncio.create_task(uplink.run())
            await eventually(lambda: len(node.carrier) == 20, "taken along")
            assert gateway.spool_rows() == 20
            await Join(node, van).run(lambda: len(hosts[1].given) == 20 and not len(node.carrier))
            await until(lambda: gateway.spool_rows() == 0)
            await until(lambda: {one.message_id for one in gateway.waiting} <= gateway.completed())
            task.cancel()
            assert gateway.delivered() == 20
            assert len({message_id for message_id, _ in hosts[1].given}) == 20
        await device.connect()
        await asyncio.sleep(0)
        assert not device.got

    run(scenario())
