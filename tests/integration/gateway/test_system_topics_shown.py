"""`$SYS/broker/…` as mosquitto's subscriber shows it."""

import asyncio
from pathlib import Path

from tests.unit.gateway.observe.observed import HOST, observed, run_real
from tests.unit.gateway.observe.test_system_topics import EXPECTED, LOADS


def test_mosquitto_sub_shows_them(tmp_path: Path) -> None:
    """A real client, both protocol versions."""

    async def scenario() -> None:
        async with observed(tmp_path, sys_interval_s=0.2) as here:
            for version in ("mqttv311", "mqttv5"):
                shown = await _mosquitto_sub(here.mqtt_port, version)
                assert {f"$SYS/broker/{name}" for name in EXPECTED | LOADS} == set(shown)
                assert shown["$SYS/broker/clients/connected"] == "1"

    run_real(scenario())


async def _mosquitto_sub(port: int, version: str) -> dict[str, str]:
    """What it has printed by topic when each topic has come, and the uptime a second time."""
    arguments = ("-h", HOST, "-p", str(port), "-V", version, "-t", "$SYS/#", "-v", "-F", "%t\t%p")
    process = await asyncio.create_subprocess_exec("mosquitto_sub", *arguments, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    shown: dict[str, str] = {}
    try:
        async with asyncio.timeout(20):
            while len(shown) < len(EXPECTED | LOADS) or shown["$SYS/broker/clients/connected"] != "1":
                topic, _, value = (await process.stdout.readline()).decode().rstrip("\n").partition("\t")
                shown[topic] = value
    finally:
        process.terminate()
        await process.communicate()
    return shown
