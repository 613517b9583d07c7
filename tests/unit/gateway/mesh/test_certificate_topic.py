"""What one gateway learns of certificates, all know, after any restart; whatever stands on the topic (M5, M17)."""

import asyncio
from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from confluent_kafka import KafkaError
from hypothesis import given, settings
from hypothesis import strategies as st

from bundles.bundle import Kind
from bundles.certificates import Certificate
from bundles.errors import CertificateError
from bundles.receipt import Role
from gateway.memory_bus import MemoryBroker, MemoryBus, MemoryRecord
from gateway.mesh.certificate_topic import CertificateTopic
from gateway.mesh.platform import Platform
from schemas.mesh_settings import MeshSettings
from schemas.settings import process_settings
from tests import draw
from tests.unit.bundles.files import PLATFORM, mesh_files, pem
from tests.unit.bundles.keys import DAY_S, NOW_S, certificate
from tests.unit.gateway.http.http_harness import run as run_http
from tests.unit.gateway.http.http_harness import until
from tests.unit.gateway.mesh.mesh_gateway import MeshGateway, b64, made, outcomes
from tests.unit.gateway.shard.virtual_time import run

TOPIC = "mesh-certificates"


class Gateway:
    """One gateway's knowledge, over a broker that it shares with others."""

    def __init__(self, broker: MemoryBroker, files: MeshSettings, most: int = 100) -> None:
        self.bus = MemoryBus(broker, asyncio.get_running_loop())
        self.platform = Platform(files, lambda: NOW_S)
        self.counts: Counter[str] = Counter()
        self.fatal: list[Exception] = []
        self.topic = CertificateTopic(
            self.bus, TOPIC, self.platform, most, lambda: NOW_S, self.counts, self.fatal.append
        )

    async def start(self) -> "Gateway":
        await self.topic.start()
        return self

    def knows(self, *names: str) -> dict[str, list[bytes]]:
        return {name: [one.der for one in self.platform.known.of(name)] for name in names}


def settings_of(directory: Path) -> MeshSettings:
    return msgspec.structs.replace(process_settings({}).gateway.mesh, **mesh_files(directory, NOW_S))


async def settle() -> None:
    for _ in range(60):
        await asyncio.sleep(0)


@cache
def issued(name: str, age_days: int, key_of: str) -> Certificate:
    """The authority issues none twice in a second."""
    return certificate(name, now_s=NOW_S - age_days * DAY_S, key_of=key_of)


NAMES = ("a", "b", "c")
steps = st.one_of(
    st.tuples(st.just("learn"), st.integers(0, 1), st.sampled_from(NAMES), st.integers(0, 2), st.booleans()),
    st.tuples(st.sampled_from(["restart", "kill"]), st.integers(0, 1)),
    st.tuples(st.sampled_from(["settle", "compact"])),
)


@settings(max_examples=draw.times(20, 400), deadline=None)
@given(happened=st.lists(steps, max_size=15), most=st.sampled_from([3, 100]))
def test_gateways_agree_and_forget_nothing_while_there_is_room(happened: list[tuple], most: int) -> None:  # type: ignore[type-arg]
    """Also if they write at the same time, are restarted, or killed with records on their way."""

    async def scenario(files: MeshSettings) -> None:
        broker = MemoryBroker(lambda: NOW_S)
        gateways = [await Gateway(broker, files, most).start() for _ in range(2)]
        newest: dict[str, dict[str, tuple[int, bytes]]] = {}
        for kind, *rest in happened:
            if kind == "learn":
                at, name, age, is_first_key = rest
                key_of = name if is_first_key else f"{name} again"
                found = issued(name, age, key_of)
                gateways[at].topic.learn(found.der)
                before = newest.setdefault(name, {}).get(key_of, (0, b""))
                newest[name][key_of] = max(before, (found.not_after_s, found.der))
            elif kind == "compact":
                broker.compact(TOPIC, 0)
            elif kind == "settle":
                await settle()
            else:
                if kind == "restart":
                    await settle()
                gateways[rest[0]].bus.crash(stored=1)
                gateways[rest[0]] = await Gateway(broker, files, most).start()
        await asyncio.sleep(6)  # what Kafka has in the wrong order is written again
        await settle()
        third = await Gateway(broker, files, most).start()
        await settle()
        gateways.append(third)
        names = (*NAMES, PLATFORM)
        assert not any(one.fatal for one in gateways)
        assert gateways[0].knows(*names) == gateways[1].knows(*names) == gateways[2].knows(*names)
        if most > len(NAMES) and not any(kind == "kill" for kind, *_ in happened):
            for name, keys in newest.items():
                assert set(third.knows(name)[name]) == {der for _, der in keys.values()}
        assert len(third.topic) <= most

    with TemporaryDirectory() as directory:
        run(scenario(settings_of(Path(directory))))


def test_the_oldest_name_makes_room_and_leaves_the_topic(tmp_path: Path) -> None:
    """And gateways stay."""

    async def scenario() -> None:
        broker, files = MemoryBroker(lambda: NOW_S), settings_of(tmp_path)
        one, other = [await Gateway(broker, files, 3).start() for _ in range(2)]
        for name in ("a", "b", "c", "d"):
            one.topic.learn(certificate(name).der)
            await settle()
        for gateway in (one, other):
            assert [name for name, found in gateway.knows(*"abcd").items() if found] == ["c", "d"]
            assert gateway.platform.known.gateways()
        broker.compact(TOPIC, 0)
        kept = [record for record in broker.partitions[TOPIC, 0] if not record.is_removed]
        assert len(kept) == 3
        other.topic.learn(certificate("a").der)  # it can be learned again
        await settle()
        assert one.knows("a")["a"]

    run(scenario())


def test_what_is_hostile_or_over_is_skipped_and_counted(tmp_path: Path) -> None:
    """R11: anybody with the right to write to the topic may have written it."""

    async def scenario() -> None:
        broker, files = MemoryBroker(lambda: NOW_S), settings_of(tmp_path)
        one = await Gateway(broker, files).start()
        good, late = certificate("good"), certificate("late", now_s=NOW_S - 60 * DAY_S)
        one.topic.learn(good.der)
        await settle()
        (right,) = [record.key() or b"" for record in broker.partitions[TOPIC, 0] if b"good" in (record.key() or b"")]
        foreign = good.der[:-1] + bytes([good.der[-1] ^ 1])
        records = [
            *((right, value) for value in (b"", b"x", foreign, certificate("other").der, bytes(1 << 20))),
            *((name, good.der) for name in (b"", b"good", b"\0", b"\xff\0aa", b"good\0" + b"0" * 32, b"x" * 2_000)),
            *((b"nobody\0aa", None), (b"", None)),
        ]
        for name, value in records:
            broker.append(MemoryRecord((TOPIC, 0), name, value, None))
        await settle()
        again = await Gateway(broker, files).start()
        for gateway in (one, again):
            assert gateway.knows("other")["other"] == []
            assert not gateway.fatal
        assert one.knows("good")["good"] == [good.der]
        assert one.counts["mesh_certificate_records_skipped"] == 12
        with pytest.raises(CertificateError):
            one.topic.learn(foreign)
        one.topic.learn(late.der)
        await settle()
        assert all(record.value() != late.der for record in broker.partitions[TOPIC, 0])

    run(scenario())


def test_what_kafka_refuses_is_written_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker, files = MemoryBroker(lambda: NOW_S), settings_of(tmp_path)
        one, other = [await Gateway(broker, files).start() for _ in range(2)]
        await settle()
        one.bus.refused[TOPIC] = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        one.topic.learn(certificate("a").der)
        await settle()
        assert one.knows("a")["a"]
        assert not other.knows("a")["a"]
        assert one.counts["mesh_certificates_unwritten"] == 1
        one.bus.refused.clear()
        await asyncio.sleep(6)
        await settle()
        assert other.knows("a") == one.knows("a")

    run(scenario())


def test_after_a_restart_a_bundle_needs_no_certificate_with_it(tmp_path: Path) -> None:
    """M5, M15: neither a message of an originator nor an envelope, whose recipient gets the certificate from here."""

    async def scenario() -> None:
        gateway = await MeshGateway(tmp_path).start()
        (ours,) = gateway.certificates("agent")
        await gateway.ask("/v1/mesh/certificates", {"certificates": [b64(ours)]})
        await until(lambda: len(gateway.broker.partitions[TOPIC, 0]) == 2)  # the platform's, too
        await gateway.restart()
        envelope = made(2, destination="@other", kind=Kind.ENVELOPE, sealed_to="other")
        assert outcomes(await gateway.bring(made(1), envelope, certificates=[])) == ["taken", "taken"]
        found = await gateway.ask("/v1/mesh/certificates", {"names": ["agent"]})
        assert found.json == {"certificates": [b64(ours)]}

    run_http(scenario())


def test_a_key_that_another_gateway_has_already_is_a_reason_to_wait(tmp_path: Path) -> None:
    """M17: while the platform's certificate is renewed at one gateway after the other, nothing is refused for good."""

    async def scenario() -> None:
        gateway = await MeshGateway(tmp_path).start()
        newer = certificate(PLATFORM, roles=[Role.GATEWAY], now_s=gateway.clock() + 60, key_of="platform again")
        bundle = made(1, sealed_to="platform again")
        assert outcomes(await gateway.bring(bundle)) == ["refused"]
        await gateway.ask("/v1/mesh/certificates", {"certificates": [b64(newer.der)]})
        state = await gateway.request("GET", "/v1/mesh")
        assert state.json["certificates"][0] == b64(newer.der)
        assert outcomes(await gateway.bring(bundle)) == ["later"]

    run_http(scenario())


def test_a_renewed_certificate_of_the_platform_is_made_known(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker, files = MemoryBroker(lambda: NOW_S), settings_of(tmp_path)
        one, other = [await Gateway(broker, files).start() for _ in range(2)]
        renewed = certificate(PLATFORM, roles=[Role.GATEWAY], now_s=NOW_S + DAY_S)
        Path(files.certificate_file).write_bytes(pem(renewed.der))
        await one.platform.files[0].refresh()
        await until(lambda: other.platform.known.gateways()[0].der == renewed.der)

    run_http(scenario())
