"""Bundles that agents bring become messages of their originators, once; what is wrong with them is found (M7, M12, M14,
M17, Q1, Q12)."""

import asyncio
import dataclasses
from collections import Counter
from pathlib import Path

from confluent_kafka import KafkaError

from bundles import revocations
from bundles.bundle import Bundle, Kind, decode, encode
from gateway.access.acl import parse
from gateway.access.authorizer import Authorizer
from gateway.access.method_authenticator import MethodAuthenticator
from gateway.access.methods import EverybodyMethod
from gateway.memory_bus import MemoryRecord
from gateway.policy.policy_authenticator import PolicyAuthenticator
from schemas.envelope import BUNDLE_WINDOW, BundleMark
from schemas.mesh_api import BUNDLE_TYPE, CERTIFICATE_PROPERTY
from schemas.settings import process_settings
from tests.draw import generator
from tests.unit.bundles.files import PLATFORM
from tests.unit.bundles.keys import NOW_S, authority_key, certificate
from tests.unit.gateway.http.http_harness import run, until
from tests.unit.gateway.mesh.mesh_gateway import DAY_S, MeshGateway, b64, made, outcomes


def test_a_message_is_published_as_its_originator(tmp_path: Path) -> None:
    """M7, M12, M17: opened, under its own id, with what its application said; the receipt is what drops the copies."""

    async def scenario() -> None:
        gateway = await MeshGateway(tmp_path).start()
        subscriber = await gateway.client("reader")
        await subscriber.subscribe("a/#")
        await asyncio.sleep(0.1)
        bundle = made(3, b"hello", content_type="text/plain", user_properties=[("k", "v")], low_water=2)
        answer = await gateway.bring(bundle)
        assert outcomes(answer) == ["taken"]
        receipt = gateway.checked(answer.json["results"][0]["receipt"])
        assert receipt.message_id == bundle.message_id
        ((message_id, source, topic, payload, meta),) = gateway.ingress()
        assert (message_id, source, topic, payload) == (bundle.message_id, "agent", "a/b", b"hello")
        assert (meta.qos, meta.bundle) == (2, BundleMark(7, 3, 2))
        await until(lambda: subscriber.payloads == [b"hello"])
        await until(lambda: len(gateway.reports()) == 1)
        (report,) = gateway.reports()
        assert (report.id, report.event, report.agent) == (bundle.message_id, "delivered", PLATFORM)
        assert (report.origin, report.peer) == ("agent", "a/b")

    run(scenario())


def test_an_envelope_reaches_the_inbox_of_its_agent_unopened(tmp_path: Path) -> None:
    """M17, M21: the platform cannot read it; hop and age are what they are now."""

    async def scenario() -> None:
        gateway = await MeshGateway(tmp_path).start()
        recipient = await gateway.client("other")
        bundle = made(destination="@other", kind=Kind.ENVELOPE, sealed_to="other", age_s=60)
        assert outcomes(await gateway.bring(bundle)) == ["taken"]
        await until(lambda: len(recipient.got) == 1)
        inside = decode(recipient.payloads[0])
        assert (inside.header, inside.ciphertext, inside.signature) == (
            bundle.header,
            bundle.ciphertext,
            bundle.signature,
        )
        assert (inside.hops, inside.age_s) == (1, 60)
        ((*_, meta),) = gateway.ingress()
        assert meta.expires is not None
        properties = [
            dict(r.headers() or [])["props"]
            for p in range(2)
            for r in gateway.broker.partitions[gateway.topics.ingress, p]
        ]
        assert BUNDLE_TYPE.encode() in properties[0]
        assert CERTIFICATE_PROPERTY.encode() in properties[0]

    run(scenario())


def test_a_repeated_bundle_is_answered_and_not_stored_again(tmp_path: Path) -> None:
    """M14: in one request, in two at once, and in a later one; another gateway learns it from message presence."""

    async def scenario() -> None:
        gateway = await MeshGateway(tmp_path).start()
        one, two = made(1), made(2)
        answers = await asyncio.gather(gateway.bring(one, one, two), gateway.bring(two, one))
        answers.append(await gateway.bring(one))
        assert [outcomes(answer) for answer in answers] == [["taken"] * 3, ["taken"] * 2, ["taken"]]
        assert sorted(record[0] for record in gateway.ingress()) == sorted([one.message_id, two.message_id])

    run(scenario())


def test_a_late_copy_does_not_bring_back_what_was_retained(tmp_path: Path) -> None:
    """M14: only a newer bundle of its originator replaces a retained message; whichever gateway has taken it."""

    async def scenario() -> None:
        gateway = await MeshGateway(tmp_path).start()

        async def retained() -> list[bytes]:
            reader = await gateway.client(f"reader{len(gateway.clients)}")
            await reader.subscribe("a/b")
            await asyncio.sleep(0.05)
            return reader.payloads

        old, new = made(1, b"old", retain=True), made(2, b"new", retain=True)
        assert outcomes(await gateway.bring(new)) == ["taken"]
        assert outcomes(await gateway.bring(old)) == ["taken"]
        assert await retained() == [b"new"]
        topic = gateway.topics.retained
        (kept,) = gateway.broker.partitions[topic, 0]
        late = [(n, v.replace(b";;7.2.1", b";;7.1.1") if n == "meta" else v) for n, v in kept.headers() or []]
        gateway.broker.append(MemoryRecord((topic, 0), b"a/b", b"another gateway's old one", late))
        await asyncio.sleep(0.05)
        assert await retained() == [b"new"]
        await gateway.restart()
        assert await retained() == [b"new"]
        assert outcomes(await gateway.bring(made(3, b"", retain=True), made(4, b"x", "a/c"))) == ["taken"] * 2
        gateway.broker.append(MemoryRecord((topic, 0), b"a/b", b"old once more", late))
        await asyncio.sleep(0.05)
        assert b"old once more" not in await retained()

    run(scenario())


def test_what_kafka_does_not_store_has_no_receipt(tmp_path: Path) -> None:
    """Q1, M12: a receipt makes carriers drop their copies."""

    async def scenario() -> None:
        gateway = await MeshGateway(tmp_path, http={"kafka_timeout_s": 0.05}).start()
        gateway.bus.held_acks.add(gateway.topics.ingress)
        answer = await gateway.bring(made(1))
        assert outcomes(answer) == ["later"]
        assert answer.json["results"][0]["receipt"] == ""
        assert gateway.reports() == []
        gateway.bus.held_acks.clear()
        gateway.bus.release()
        await until(lambda: len(gateway.reports()) == 1)
        assert outcomes(await gateway.bring(made(1))) == ["taken"]
        assert len(gateway.ingress()) == 1

    run(scenario())


def test_hostile_bundles(tmp_path: Path) -> None:
    """M17, Q12: none of them becomes a message, and each good one beside them does."""
    good = made(50)
    other = made(1, originator="other")
    lying = Bundle(dataclasses.replace(good.header, originator="other"), good.ciphertext, good.signature)
    moved = Bundle(dataclasses.replace(good.header, destination="x"), good.ciphertext, good.signature)
    wrong = {
        "forged signature": (made(2, signer="thief"), "refused"),
        "another's header": (lying, "refused"),
        "another destination": (moved, "refused"),
        "nobody knows": (made(3, originator="stranger"), "later"),
        "not for the platform": (made(4, sealed_to="other"), "refused"),
        "no message": (made(5, destination="a/+"), "refused"),
        "reserved": (made(6, destination="$presence/x"), "refused"),
        "over": (made(7, lifetime_s=60, age_s=60), "refused"),
        "too large": (made(8, bytes(1_100_000)), "refused"),
        "U+0000": (made(9, content_type="\0"), "refused"),
        "response topic": (made(10, response_topic="#"), "refused"),
        "truncated": (encode(good)[:-1], "refused"),
        "longer": (encode(good) + b"x", "refused"),
        "nothing": (b"", "refused"),
        "the platform's own": (made(11, originator="$presence"), "refused"),
        "as over HTTP": (made(12, originator="http:ann"), "refused"),
    }

    async def scenario() -> None:
        gateway = await MeshGateway(tmp_path).start()
        names = gateway.certificates("agent", "other", "$presence", "http:ann")
        stranger = certificate("stranger", now_s=gateway.clock()).der
        broken = stranger[:-1] + bytes([stranger[-1] ^ 1])
        answer = await gateway.bring(
            *(bundle for bundle, _ in wrong.values()), good, certificates=[*names, broken, b""]
        )
        found = dict(zip([*wrong, "good"], outcomes(answer), strict=True))
        assert found == {name: outcome for name, (_, outcome) in wrong.items()} | {"good": "taken"}
        assert all(result["reason"] for result in answer.json["results"][:-1])
        assert [record[0] for record in gateway.ingress()] == [good.message_id]
        assert outcomes(await gateway.bring(other)) == ["taken"]

    run(scenario())


def test_what_recipients_cannot_remember_has_no_receipt(tmp_path: Path) -> None:
    """M14, Q1: whatever has a receipt is delivered, once. So what a shard must not forget is limited before that: how
    long a bundle lives, how far it is above its mark, and of how many stores of an originator messages are taken;
    also after kill -9."""

    async def scenario() -> None:
        limits = {"lifetime_s": DAY_S, "originator_incarnations": 2, "remembered_s": 2.0 * DAY_S}
        gateway = await MeshGateway(tmp_path, mesh=limits).start()
        reader = await gateway.client("reader")
        await reader.subscribe("#")
        await asyncio.sleep(0.1)
        answer = await gateway.bring(
            made(1, lifetime_s=DAY_S + 1),
            made(BUNDLE_WINDOW + 2, low_water=2),
            made(BUNDLE_WINDOW + 1, b"far", low_water=2),
            made(1, b"other store", incarnation=8),
            made(1, b"third store", incarnation=9),
            made(1, destination="@other", kind=Kind.ENVELOPE, sealed_to="other", incarnation=9),
            made(2, b"near", "another/topic", low_water=2),
            *(made(n, b"topic", f"topics/{n}", low_water=2) for n in range(3, 30)),
        )
        assert outcomes(answer) == ["refused", "refused", "taken", "taken", "later", "taken", "taken", *["taken"] * 27]
        expected = sorted([b"far", b"other store", b"near", *[b"topic"] * 27])
        await until(lambda: len(reader.payloads) == len(expected))
        assert sorted(reader.payloads) == expected
        for shard in gateway.home.shards.values():
            await shard.checkpoint(at_once=True)
        await gateway.restart()
        again = await gateway.bring(made(1, b"third store", incarnation=9), made(3, b"second", incarnation=8))
        assert outcomes(again) == ["later", "taken"]

    run(scenario())


def test_mutated_bundles_are_refused_or_change_only_what_is_not_signed(tmp_path: Path) -> None:
    draws = generator("mutated bundles at a gateway")
    good = encode(made(1))
    mutated = []
    for _ in range(150):
        at = draws.randrange(6, len(good))
        mutated.append(good[:at] + bytes([good[at] ^ draws.randrange(1, 256)]) + good[at + 1 :])
    mutated += [good[: draws.randrange(len(good))] for _ in range(50)]

    async def scenario() -> None:
        gateway = await MeshGateway(tmp_path).start()
        answer = await gateway.bring(*mutated, certificates=gateway.certificates("agent"))
        assert set(outcomes(answer)) <= {"refused", "later"}
        assert gateway.ingress() == []

    run(scenario())


def test_rules_and_policy_are_those_of_the_originator(tmp_path: Path) -> None:
    """Q12, R11: the proxy only needs the right to bring bundles; what they may say, their originators' rules say."""
    rules = """
        [[rules]]
        users = ["agent"]
        publish.allow = ["of/%u/#", "@%c"]
        [[rules]]
        users = ["proxy"]
        publish.allow = ["$bundles"]
    """

    async def scenario() -> None:
        settings = process_settings({"WAYSTATION_GATEWAY__POLICY__BLOCKED_PUBLISH": '["of/agent/blocked"]'})
        gateway = MeshGateway(tmp_path)
        authorizer = Authorizer(parse(rules, "rules", default=False), Counter())
        inner = MethodAuthenticator([EverybodyMethod()], authorizer, authorizer.counts)
        gateway._authenticator = PolicyAuthenticator(
            inner, settings.gateway.policy, authorizer.counts, gateway.loop_time
        )
        await gateway.start()
        assert (await gateway.bring(made(1))).status == 403
        authorizer.replace(parse(rules.replace('users = ["proxy"]', ""), "rules", default=False))
        bundles = [
            made(1, destination="of/agent/x"),
            made(2, destination="of/other/x"),
            made(3, destination="of/other/x", originator="other"),
            made(4, destination="of/agent/blocked"),
        ]
        assert outcomes(await gateway.bring(*bundles)) == ["taken", "refused", "refused", "refused"]
        assert [record[1:3] for record in gateway.ingress()] == [("agent", "of/agent/x")]

    run(scenario())


def test_what_will_never_be_taken_is_refused_for_good_and_says_why(tmp_path: Path) -> None:
    """Q12: policy's and Kafka's size limits, too; what is beyond a rate or a quota may be brought again."""
    content = {
        "WAYSTATION_GATEWAY__POLICY__MESSAGE_BYTES": "1000",
        "WAYSTATION_GATEWAY__POLICY__TOPIC_BYTES": '[{filter = "small/#", bytes = 10}]',
        "WAYSTATION_GATEWAY__POLICY__ATTACHMENTS__TYPES": '["image/*"]',
        "WAYSTATION_GATEWAY__POLICY__ATTACHMENTS__BYTES": "20",
        "WAYSTATION_GATEWAY__POLICY__MESSAGE_RATE__MESSAGES_PER_S": "0.01",
        "WAYSTATION_GATEWAY__POLICY__MESSAGE_RATE__MESSAGES_BURST": "10",
    }

    async def scenario() -> None:
        policy = process_settings(content).gateway.policy
        gateway = MeshGateway(tmp_path, retained_messages=1)
        inner = MethodAuthenticator([EverybodyMethod()], None, Counter())
        gateway._authenticator = PolicyAuthenticator(inner, policy, Counter(), gateway.loop_time)
        await gateway.start()
        sent = {
            "message": made(1, bytes(1_001)),
            "topic": made(2, bytes(11), "small/x"),
            "attachment": made(3, bytes(21), content_type="image/png"),
            "retained": made(4, b"x", "a", retain=True),
            "too many retained": made(5, b"x", "b", retain=True),
            "too many": made(20),
        }
        more = [made(n) for n in range(6, 12)]  # a burst of ten is allowed
        answer = await gateway.bring(*[*sent.values()][:5], *more, sent["too many"])
        results = answer.json["results"]
        found = {name: results[n] for n, name in enumerate([*sent][:5])} | {"too many": results[-1]}
        assert {name: one["outcome"] for name, one in found.items()} == {
            **dict.fromkeys(["message", "topic", "attachment"], "refused"),
            "retained": "taken",
            "too many retained": "later",
            "too many": "later",
        }
        assert all("larger than a limit" in found[name]["reason"] for name in ("message", "topic", "attachment"))
        gateway.bus.refused[gateway.topics.ingress] = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
        (result,) = (await gateway.bring(made(1, originator="other"))).json["results"]
        assert result["outcome"] == "refused"
        assert "Kafka takes" in result["reason"]

    run(scenario())


def test_a_revoked_originator_is_heard_no_more(tmp_path: Path) -> None:
    """M5, M17: within a second of the list; a newer certificate of the same device counts again."""

    async def scenario() -> None:
        lists = tmp_path / "revocations"
        lists.write_bytes(revocations.sign(1, NOW_S, {}, authority_key()).encoded)
        gateway = await MeshGateway(tmp_path, mesh={"revocations_file": str(lists)}).start()
        assert outcomes(await gateway.bring(made(1))) == ["taken"]
        listed = revocations.sign(2, NOW_S, {"agent": int(gateway.clock()) + 10}, authority_key()).encoded
        lists.write_bytes(listed)
        for file in gateway.platform.files:
            await file.refresh()
        assert outcomes(await gateway.bring(made(2))) == ["later"]
        state = await gateway.request("GET", "/v1/mesh")
        assert state.json["revocations"] == b64(listed)
        assert state.json["certificates"] == [b64(gateway.platform.identity.certificate.der)]
        lists.write_bytes(b"nonsense")
        for file in gateway.platform.files:
            await file.refresh()
        assert outcomes(await gateway.bring(made(2))) == ["later"]

    run(scenario())
