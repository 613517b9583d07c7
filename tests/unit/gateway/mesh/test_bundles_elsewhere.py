"""An agent asks one gateway about devices that have their homes at several (M12, M14, M15, M21, G14)."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from bundles.bundle import Bundle, Kind, encode
from gateway.errors import HomeUnreachable
from schemas.identity import shard_of
from schemas.settings import Settings
from tests.unit.bundles.files import mesh_files
from tests.unit.bundles.keys import certificate
from tests.unit.gateway.http.http_harness import Answer, until
from tests.unit.gateway.http.http_site import HttpSite, run
from tests.unit.gateway.mesh.mesh_gateway import PROXY, b64, made, outcomes
from tests.unit.gateway.mesh.test_carried_bundles import bundles_in, of_device
from tests.unit.gateway.shard.home_harness import SHARDS

DEVICES = [next(f"van-{n}" for n in range(99) if shard_of(f"van-{n}", SHARDS) == shard) for shard in range(SHARDS)]
"""Device n has its home at gateway n."""


class MeshSite(HttpSite):
    """With a device at each gateway, which is away."""

    def __init__(self, directory: Path, **mesh: Any) -> None:
        super().__init__(directory, gateway={"spool_after_s": 0.0, "checkpoint_s": 0.01})
        self._mesh_settings = mesh_files(directory / "mesh", self.clock()) | {"carried": ("van-*",)} | mesh

    def settings(self) -> Settings:
        settings = super().settings()
        mesh = msgspec.structs.replace(settings.gateway.mesh, **self._mesh_settings)
        return msgspec.structs.replace(settings, gateway=msgspec.structs.replace(settings.gateway, mesh=mesh))

    async def devices(self, bundles: int) -> list[list[Bundle]]:
        """What waits, by device. It was brought to gateway 0."""
        waiting: list[list[Bundle]] = []
        for number, device in enumerate(DEVICES):
            (await self.client(device)).lose()
            first = 1 + number * bundles
            waiting.append(
                [
                    made(sequence, b"x", f"@{device}", kind=Kind.ENVELOPE, sealed_to=device)
                    for sequence in range(first, first + bundles)
                ]
            )
        raw = [b64(encode(one)) for some in waiting for one in some]
        body = {"bundles": raw, "certificates": self.certificates("agent")}
        assert set(outcomes(await self.post("/v1/bundles", body))) == {"taken"}
        await until(lambda: self.spool_rows() == bundles * len(DEVICES))
        return waiting

    def certificates(self, *names: str) -> list[str]:
        return [b64(certificate(name, now_s=self.clock()).der) for name in names]

    async def post(self, path: str, body: Any, gateway: int = 0, agent: str = "proxy") -> Answer:
        headers = PROXY | {"X-Client-Id": agent}
        return await self.ask(gateway, "POST", path, data=msgspec.json.encode(body), headers=headers)

    async def waiting(self, positions: dict[str, int], **asked: Any) -> Answer:
        return await self.post("/v1/bundles/waiting", {"devices": positions}, **asked)

    async def receipts(self, bundles: Iterable[Bundle], **asked: Any) -> list[str]:
        raw = [b64(of_device(one, one.header.destination[1:]).encoded) for one in bundles]
        body = {"receipts": [b64(b"none"), *raw], "certificates": self.certificates(*DEVICES)}
        return outcomes(await self.post("/v1/receipts", body, **asked))


def test_what_waits_at_any_gateway_is_given(tmp_path: Path) -> None:
    """A gateway at a time, so that an answer is no larger; and who carries for a device is decided at its home."""

    async def scenario() -> None:
        site = await MeshSite(tmp_path).start()
        waiting = await site.devices(3)
        positions, found = dict.fromkeys(DEVICES, 0), list[Bundle]()
        for _ in range(len(DEVICES) + 1):
            answer = await site.waiting(positions)
            given = bundles_in(answer)
            assert len({one.header.recipient for one in given}) <= 1
            assert answer.json["certificates"] or not given
            positions |= answer.json["positions"]
            found += given
            if not answer.json["more"] and not given:
                break
        assert {one.message_id for one in found} == {one.message_id for some in waiting for one in some}
        for gateway in (0, 1):
            refused = await site.waiting(dict.fromkeys(DEVICES, 0), gateway=gateway, agent="another")
            assert set(refused.json["refused"]) == set(DEVICES)

    run(scenario())


def test_receipts_end_what_waits_at_any_gateway(tmp_path: Path) -> None:
    """In one request, in order; again they end nothing."""

    async def scenario() -> None:
        site = await MeshSite(tmp_path).start()
        waiting = await site.devices(2)
        mixed = [waiting[0][0], waiting[1][0], waiting[0][1], waiting[1][1]]
        assert await site.receipts(mixed) == ["refused", *["settled"] * 4]
        assert await site.receipts(mixed, gateway=1) == ["refused", *["unknown"] * 4]
        assert site.spool_rows() == 0

    run(scenario())


def test_a_gateway_that_does_not_answer_is_asked_again_later(tmp_path: Path) -> None:
    """What can be done here is done."""

    async def scenario() -> None:
        site = await MeshSite(tmp_path).start()
        waiting = await site.devices(1)

        async def fails(*_: object) -> None:
            raise HomeUnreachable("nobody answers")

        calls, call = site.calls(0), site.calls(0).call
        calls.call = fails  # type: ignore[method-assign, assignment]
        mixed = [waiting[0][0], waiting[1][0]]
        assert await site.receipts(mixed) == ["refused", "settled", "later"]
        answer = await site.waiting(dict.fromkeys(DEVICES, 0))
        assert answer.json["refused"] == {DEVICES[1]: "nobody answers"}
        calls.call = call  # type: ignore[method-assign]
        assert await site.receipts(mixed) == ["refused", "unknown", "settled"]

    run(scenario())
