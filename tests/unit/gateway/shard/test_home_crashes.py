"""The gateway is killed, or stopped, at each stage of an exchange: nothing acknowledged is lost, nothing at QoS 2 comes
twice (Q1, G8, G9). At any moment of any life: `test_home_state_machine`.
"""

from pathlib import Path

import pytest

from tests.unit.gateway.shard.home_harness import LEAD_S, HomeHarness, turn
from tests.unit.gateway.shard.home_model import KILLED, HomeModel
from tests.unit.gateway.shard.virtual_time import run


@pytest.mark.drawn("stages of an exchange", 16)
@pytest.mark.parametrize("end", ["crash", "stop"])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("wait_s", [0.0, LEAD_S + 5])
@pytest.mark.parametrize("ms", [0, 1, 2, 3, 5, 8, 100, 240, 251, 5_100, 5_251, 5_500])
def test_a_crash_at_each_stage_of_an_exchange(tmp_path: Path, end: str, qos: int, wait_s: float, ms: int) -> None:
    """Q1, G8: `ms` after publishing, with a receiver that answers late; and once more right after."""
    model = HomeModel(KILLED._replace(wait_s=wait_s))

    async def finish_home(stored: int) -> None:
        await turn(ms / 1_000)
        if end == "stop":
            await model.stop()
        else:
            model.harness.crash(stored)
        await model.ensure_up()

    async def scenario() -> None:
        await model.begin(tmp_path)
        first, _, last = model.receivers
        model.publish(0, "a/x", qos)
        first.mute = True
        model.publish(0, "a/x", qos)
        last.mute = True
        model.publish(0, "a/y", qos)
        await finish_home(ms % 4)
        await model.connect(first)
        await finish_home(0)
        await model.connect(last)
        await turn(ms / 1_000)
        await model.finish()
        model.look()
        model.check()
        model.harness.crash()

    run(scenario())


def test_the_window_record_does_not_grow_with_the_rate(tmp_path: Path) -> None:
    """G8: a record of the session log stays far below the broker's limit, whatever goes through between checkpoints."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        receiver = await harness.client("receiver", receive_maximum=50)
        await receiver.subscribe("a/#")
        for _ in range(60):
            for n in range(100):
                sender.publish("a/b", b"%d" % n, 2)
            await turn(0.05)
        await turn(1)
        assert len(receiver.payloads) == 6_000
        records = [r for p in (0, 1) for r in harness.broker.partitions[harness.topics.sessions, p]]
        windows = [r for r in records if r.key() == b"receiver\0w"]
        assert len(windows) > 1_000 / 50
        assert max(len(r.value() or b"") for r in windows) < 10_000

    run(scenario())
