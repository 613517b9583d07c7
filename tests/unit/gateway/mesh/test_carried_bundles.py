"""What waits for a device that is away goes with an agent that may carry it, and ends with the device's receipt (M12,
M14, M15, M21, Q1)."""

import base64
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from bundles.bundle import Bundle, Kind, decode
from bundles.receipt import Receipt, Role
from gateway.access.acl import parse
from gateway.access.authorizer import Authorizer
from gateway.access.method_authenticator import MethodAuthenticator
from gateway.access.methods import EverybodyMethod
from schemas.settings import process_settings
from tests.unit.bundles.files import PLATFORM
from tests.unit.bundles.keys import receipt
from tests.unit.gateway.http.http_harness import Answer, run, until
from tests.unit.gateway.mesh.mesh_gateway import PROXY, MeshGateway, b64, made, outcomes
from tests.unit.gateway.shard.home_client import Client

AT_ONCE = {"spool_after_s": 0.0, "checkpoint_s": 0.01}
DEVICE = "van-7"


class CarryingGateway(MeshGateway):
    """With a device that is away, and what waits for it in the spool."""

    def __init__(self, directory: Path, *, carried: Iterable[str] = ("van-*",), **mesh: Any) -> None:
        options = {"authenticator": mesh.pop("authenticator", None)}
        super().__init__(directory, mesh={"carried": tuple(carried), **mesh}, gateway=AT_ONCE, **options)
        access_point = process_settings({}).gateway.access_point
        self._gateway["access_point"] = msgspec.structs.replace(access_point, enabled=False)
        self.waiting: list[Bundle] = []

    async def device(self, *, bundles: int = 0, name: str = DEVICE) -> Client:
        client = await self.client(name)
        client.lose()
        for sequence in range(1, bundles + 1):
            self.waiting.append(made(sequence, b"%d" % sequence, f"@{name}", kind=Kind.ENVELOPE, sealed_to=name))
        if self.waiting:
            assert set(outcomes(await self.bring(*self.waiting))) == {"taken"}
        await until(lambda: self.spool_rows() >= len(self.waiting))
        return client

    async def ask_for(self, *devices: str, agent: str = "carrier", after: int = 0) -> Answer:
        asked = dict.fromkeys(devices, after)
        return await self.ask("/v1/bundles/waiting", {"devices": asked}, PROXY | {"X-Client-Id": agent})

    async def receipts(self, *receipts: Receipt | bytes, signers: Iterable[str] = (DEVICE,)) -> list[str]:
        raw = [one.encoded if isinstance(one, Receipt) else one for one in receipts]
        body = {"receipts": [b64(one) for one in raw], "certificates": [b64(c) for c in self.certificates(*signers)]}
        return outcomes(await self.ask("/v1/receipts", body))

    def delivered(self, client: str = DEVICE) -> int:
        return self.outcomes(client).count("delivered")


def of_device(bundle: Bundle, device: str = DEVICE) -> Receipt:
    return receipt(bundle.message_id, device, Role.RECIPIENT)


def bundles_in(answer: Answer) -> list[Bundle]:
    assert answer.status == 200, answer.body
    return [decode(_raw(one)) for one in answer.json["bundles"]]


def _raw(text: str) -> bytes:
    return base64.b64decode(text)


def test_what_waits_is_given_in_pages_and_stays_until_the_devices_receipt(tmp_path: Path) -> None:
    """M15, M21: oldest first, one hop further, with the originators' certificates; nothing is removed by that. The row
    ends with the receipt, the message is complete, and message presence is told."""

    async def scenario() -> None:
        gateway = await CarryingGateway(tmp_path, waiting_bundles=3).start()
        device = await gateway.device(bundles=5)
        plain = await gateway.client("sender")
        plain.publish(f"@{DEVICE}", b"not a bundle")
        await until(lambda: gateway.spool_rows() == 6)
        first = await gateway.ask_for(DEVICE)
        found, position = bundles_in(first), first.json["positions"][DEVICE]
        assert first.json["more"]
        rest = await gateway.ask_for(DEVICE, after=position)
        found += bundles_in(rest)
        assert not rest.json["more"]
        assert [one.signed for one in found] == [one.signed for one in gateway.waiting]
        assert {one.hops for one in found} == {2}
        assert [_raw(one) for one in first.json["certificates"]] == [
            one.der for one in gateway.platform.known.of("agent")
        ]
        assert not bundles_in(await gateway.ask_for(DEVICE, after=rest.json["positions"][DEVICE]))
        assert gateway.spool_rows() == 6
        settled, others = gateway.waiting[1:4], [gateway.waiting[0], gateway.waiting[4]]
        assert await gateway.receipts(*map(of_device, settled)) == ["settled"] * 3
        assert gateway.spool_rows() == 3
        assert await gateway.receipts(*map(of_device, settled)) == ["unknown"] * 3
        await until(lambda: {one.message_id for one in settled} <= gateway.completed())
        assert gateway.delivered() == 3
        await until(lambda: sum(one.agent == DEVICE for one in gateway.reports()) == 3)
        report = next(one for one in gateway.reports() if one.agent == DEVICE)
        assert (report.event, report.origin, report.peer) == ("delivered", "agent", f"@{DEVICE}")
        await gateway.restart()
        assert [one.signed for one in bundles_in(await gateway.ask_for(DEVICE))] == [one.signed for one in others]
        await device.connect()
        await until(lambda: len(device.got) == 3)
        assert not bundles_in(await gateway.ask_for(DEVICE))

    run(scenario())


def test_one_agent_carries_at_a_time(tmp_path: Path) -> None:
    """M15: another is told so. What a gateway forgets with a restart makes copies, and loses nothing."""

    async def scenario() -> None:
        gateway = await CarryingGateway(tmp_path).start()
        await gateway.device(bundles=2)
        given = await gateway.ask_for(DEVICE)
        assert len(bundles_in(given)) == 2
        assert len(bundles_in(await gateway.ask_for(DEVICE))) == 2, "the answer may have been lost"
        assert not bundles_in(await gateway.ask_for(DEVICE, after=given.json["positions"][DEVICE]))
        refused = await gateway.ask_for(DEVICE, agent="another")
        assert not bundles_in(refused)
        assert "another agent carries" in refused.json["refused"][DEVICE]
        await gateway.restart()
        assert len(bundles_in(await gateway.ask_for(DEVICE, agent="another"))) == 2

    run(scenario())


def test_each_of_many_devices_is_read(tmp_path: Path) -> None:
    """However many are asked for before it; and behind other messages, which take several reads."""

    async def scenario() -> None:
        gateway = await CarryingGateway(tmp_path, carried=["*"]).start()
        sender = await gateway.client("sender")
        device = await gateway.client(DEVICE)
        device.lose()
        for _ in range(700):
            sender.publish(f"@{DEVICE}", b"")
        await until(lambda: gateway.spool_rows() == 700)
        gateway.waiting.append(made(1, destination=f"@{DEVICE}", kind=Kind.ENVELOPE, sealed_to=DEVICE))
        assert outcomes(await gateway.bring(*gateway.waiting)) == ["taken"]
        await until(lambda: gateway.spool_rows() == 701)
        answer = await gateway.ask_for(*(f"other-{number}" for number in range(499)), DEVICE)
        assert [one.signed for one in bundles_in(answer)] == [gateway.waiting[0].signed]
        assert not answer.json["more"]

    run(scenario())


def test_nothing_is_given_of_devices_that_are_connected_or_not_registered(tmp_path: Path) -> None:
    """M15: the operator says for whom agents carry; a device that is connected gets its messages itself."""

    async def scenario() -> None:
        gateway = await CarryingGateway(tmp_path).start()
        device = await gateway.device(bundles=1)
        device.mute = True
        await device.connect()
        answer = await gateway.ask_for(DEVICE, "nobody", "van-8")
        assert (answer.json["bundles"], answer.json["more"]) == ([], False)
        assert [*answer.json["refused"]] == ["nobody"]
        device.lose()
        assert len(bundles_in(await gateway.ask_for(DEVICE))) == 1

    run(scenario())


def test_what_hostile_agents_ask_for_and_bring_is_refused(tmp_path: Path) -> None:
    """M12, Q12: devices that the rules do not allow, too many, malformed; receipts of others, forged, of other roles,
    by signers without a certificate, and for other agents' messages end nothing."""
    rules = '[[rules]]\nsubscribe.allow = ["$bundles/van-7"]\npublish.allow = ["$bundles", "@van-7", "@van-8"]\n'

    async def scenario() -> None:
        authenticator = MethodAuthenticator(
            (EverybodyMethod(),), Authorizer(parse(rules, "rules", default=False), Counter[str]()), Counter[str]()
        )
        gateway = await CarryingGateway(tmp_path, authenticator=authenticator).start()
        await gateway.device(bundles=2)
        answer = await gateway.ask_for(DEVICE, "van-8", "+", "#", "van-7/#", "")
        assert set(answer.json["refused"]) == {"van-8", "+", "#", "van-7/#", ""}
        assert len(bundles_in(answer)) == 2
        assert (await gateway.ask_for(*map(str, range(501)))).status == 400
        for body in ({"devices": {DEVICE: -1}}, {"devices": {DEVICE: 2**63}}, {"devices": [DEVICE]}, {}):
            assert (await gateway.ask("/v1/bundles/waiting", body)).status == 400
        nameless = await gateway.ask("/v1/bundles/waiting", {"devices": {}}, {"Content-Type": "application/json"})
        assert (nameless.status, nameless.reason) == (400, "nameless_client")

        message_id = gateway.waiting[0].message_id
        bad = [
            receipt(message_id, DEVICE, Role.RECIPIENT, by="van-8"),
            receipt(message_id, PLATFORM, Role.GATEWAY),
            receipt(message_id, DEVICE, Role.EXIT_AGENT),
            of_device(gateway.waiting[0]).encoded[:-1],
        ]
        assert await gateway.receipts(*bad) == ["refused"] * 4
        foreign = of_device(gateway.waiting[0], "van-8")
        assert await gateway.receipts(foreign, signers=["van-8"]) == ["unknown"]
        assert await gateway.receipts(of_device(gateway.waiting[0], "van-9"), signers=()) == ["later"]
        assert await gateway.receipts(receipt("0" * 8 + "-0000-8000-8000-" + "0" * 12, DEVICE, Role.RECIPIENT)) == [
            "unknown"
        ]
        many = {"receipts": [b64(foreign.encoded)] * 501}
        assert (await gateway.ask("/v1/receipts", many)).status == 400
        assert gateway.spool_rows() == 2
        assert not gateway.delivered()

    run(scenario())
