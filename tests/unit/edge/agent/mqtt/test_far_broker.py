"""What the agent is subscribed to on a stock broker, over restarts with other settings (M16, M21)."""

import asyncio
from pathlib import Path
from typing import cast

from edge.agent.mqtt.far_broker import stay_subscribed
from edge.agent.mqtt.settings import BrokerSettings
from edge.client.client import Client
from tests.faithful_client import eventually
from tests.unit.edge.agent.mqtt.mqtt_harness import broker, complete
from tests.unit.edge.agent.mqtt.test_platform_subscriptions import Platform


def test_a_filter_that_has_left_the_settings_is_unsubscribed(tmp_path: Path) -> None:
    """The session at the broker outlasts a restart: it would send what nobody wants for ever."""

    async def run() -> None:
        stock = Platform()

        async def subscribed(filters: dict[str, str], *expected: str) -> None:
            async with broker(tmp_path) as agent:
                part = stay_subscribed(cast(Client, stock), agent.changes, BrokerSettings(subscriptions=filters))
                running = asyncio.create_task(part)
                try:
                    await eventually(lambda: stock.filters == set(expected), "it is subscribed")
                    assert not running.done(), running.exception()
                finally:
                    running.cancel()
                    await asyncio.wait([running])

        await subscribed({"commands/#": "@van-7", "old": "@van-7"}, "commands/#", "old")
        await subscribed({"commands/#": "@van-7", "new": "@van-7"}, "commands/#", "new")

    complete(run())
