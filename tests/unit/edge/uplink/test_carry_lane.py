"""What waits for devices is taken along in pages, and their receipts are brought (M15, M21); in virtual time."""

from collections.abc import Sequence

import pytest

from bundles.bundle import Bundle
from bundles.receipt import Receipt, Role
from edge.uplink.carry_lane import OFF_S, CarryLane, FetchLimits
from edge.uplink.errors import GatewayProblem
from schemas.mesh_api import ReceiptResult
from tests.unit.bundles.keys import bundle, receipt
from tests.unit.edge.uplink.fake_holder import FakeHolder
from tests.unit.edge.uplink.fake_platform import (
    FakeGateway,
    FakePlatform,
    deliverer,
    link,
    now,
    run_until,
)
from tests.unit.gateway.shard.virtual_time import run


class FakeCarrier:
    """`room`: so many bundles fit."""

    def __init__(self, *devices: str, room: int = 1_000) -> None:
        self.names, self.room = list(devices), room
        self.carried: dict[str, Bundle] = {}
        self.offered = 0
        self.receipts: list[Receipt] = []
        self.learnt = 0

    def devices(self) -> Sequence[str]:
        return self.names

    async def learn(self, certificates: Sequence[bytes]) -> None:
        self.learnt += len(certificates)

    async def carry(self, bundle: Bundle) -> bool:
        self.offered += 1
        fits = len(self.carried) < self.room
        if fits:
            self.carried[bundle.message_id] = bundle
        return fits

    def receipts_after(self, number: int, most: int) -> tuple[Sequence[Receipt], int]:
        found = self.receipts[number : number + most]
        return found, number + len(found)

    def certificates(self, originator: str) -> Sequence[bytes]:
        return [originator.encode()]


class Setting:
    """A platform, an agent that takes along, and the gateway between them."""

    def __init__(self, *devices: str, room: int = 1_000, limits: FetchLimits | None = None) -> None:
        self.platform, self.carrier = FakePlatform(), FakeCarrier(*devices, room=room)
        self.gateway = FakeGateway(self.platform, "a")
        self.lane = CarryLane(self.carrier, limits or FetchLimits(), now)
        self.deliverer = deliverer(FakeHolder(), link(self.gateway), carrying=self.lane)

    def wait_for(self, device: str, count: int) -> list[Bundle]:
        made = [bundle(number, originator=f"to-{device}", destination=f"@{device}") for number in range(1, count + 1)]
        self.platform.waiting[device] = self.platform.waiting.get(device, []) + made
        return made

    async def for_s(self, seconds: float) -> None:
        end = now() + seconds
        await run_until(lambda: now() >= end, self.deliverer)


def received(message: Bundle) -> Receipt:
    recipient = message.header.recipient
    assert recipient is not None
    return receipt(message.message_id, recipient, Role.RECIPIENT)


def test_what_waits_is_taken_along_once_in_pages() -> None:
    """M15: at once all that there is, later what is new; nothing for devices that the agent does not meet."""

    async def scenario() -> None:
        setting = Setting("van", "cart")
        made = setting.wait_for("van", 5) + setting.wait_for("cart", 3)
        setting.wait_for("strange", 2)
        await setting.for_s(10)
        assert set(setting.carrier.carried) == {one.message_id for one in made}
        assert setting.carrier.offered == len(made) == setting.lane.taken
        assert setting.carrier.learnt
        more = bundle(9, originator="to-van", destination="@van")
        setting.platform.waiting["van"].append(more)
        await setting.for_s(90)
        assert more.message_id in setting.carrier.carried
        assert setting.carrier.offered == len(made) + 1

    run(scenario())


def test_what_does_not_fit_is_asked_for_again_later() -> None:
    """M2, M15: not every minute, and what the device had before it is kept."""

    async def scenario() -> None:
        setting = Setting("van", room=3)
        made = setting.wait_for("van", 6)
        await setting.for_s(OFF_S - 60)
        assert setting.carrier.offered <= 5
        setting.carrier.room = 100
        await setting.for_s(120)
        assert set(setting.carrier.carried) == {one.message_id for one in made}

    run(scenario())


def test_a_round_has_a_limit_and_fetching_can_be_off() -> None:
    """M19."""

    async def scenario() -> None:
        setting = Setting("van", limits=FetchLimits(60.0, bundles=4))
        setting.wait_for("van", 20)
        await setting.for_s(30)
        assert len(setting.carrier.carried) == 4
        await setting.for_s(60)
        assert len(setting.carrier.carried) == 8
        off = Setting("van", limits=FetchLimits(0.0))
        message = off.wait_for("van", 1)[0]
        off.carrier.receipts.append(received(message))
        await off.for_s(30)
        assert not off.carrier.carried
        assert off.platform.brought == [message.message_id]

    run(scenario())


def test_receipts_are_brought_until_the_platform_has_answered() -> None:
    """M12, M21: all of them; those that it cannot judge yet once more, and the others not again."""

    async def scenario() -> None:
        setting = Setting()
        made = setting.wait_for("van", 601)
        setting.carrier.receipts += map(received, made)
        first = made[0].message_id
        setting.platform.receipt_outcomes[first] = ReceiptResult("later", "the certificate is unknown")
        await setting.for_s(10)
        assert setting.platform.brought == [one.message_id for one in made]
        assert setting.lane.settled == 600
        setting.platform.receipt_outcomes.clear()
        await setting.for_s(120)
        assert setting.platform.brought[601:] == [first]
        assert setting.lane.settled == 601

    run(scenario())


@pytest.mark.parametrize("fault", ["answer lost", "refused", "problem"])
def test_failures_cost_repetitions_only(fault: str) -> None:
    """M4: other requests go on, and nothing is left out."""

    async def scenario() -> None:
        setting = Setting("van")
        made = setting.wait_for("van", 5)
        setting.carrier.receipts += map(received, made[:2])
        faults = iter([None, None, None] + [fault] * 6)
        setting.gateway.fault = lambda: next(faults, None)
        await setting.for_s(600)
        assert set(setting.carrier.carried) == {one.message_id for one in made}
        assert set(setting.platform.brought) == {one.message_id for one in made[:2]}

    run(scenario())


def test_a_gateway_that_knows_nothing_of_this_is_asked_seldom() -> None:
    async def scenario() -> None:
        setting = Setting("van")
        asked = 0

        async def unknown(request: object) -> None:
            nonlocal asked
            asked += 1
            raise GatewayProblem(404, "not_found", "this path does not exist")

        setting.gateway.waiting = unknown  # type: ignore[method-assign, assignment]
        await setting.for_s(OFF_S + 60)
        assert asked == 2

    run(scenario())


def test_a_gateway_gives_what_nobody_has_asked_for() -> None:
    """It is not taken."""

    async def scenario() -> None:
        setting = Setting("van")
        setting.platform.waiting["van"] = [bundle(1, originator="x", destination="@cart")]
        await setting.for_s(30)
        assert not setting.carrier.offered
        assert "nobody has asked for" in setting.lane.last_problem

    run(scenario())
