"""Who may hear of others' presence, and that nobody but the ledger tells it (R11, R12)."""

from pathlib import Path

from schemas.envelope import NO_PROPERTIES, RETAIN_FLAG, Meta, ingress_headers
from tests.integration.gateway.listener_harness import ListenerHarness
from tests.integration.gateway.test_listeners import password_file, with_listeners

RULES = """
[[rules]]
users = ["guard"]
subscribe.allow = ["$presence/#"]

[[rules]]
subscribe.allow = ["#", "$presence/%c"]
publish.allow = ["#", "$presence/#"]
"""


def told(gateway: ListenerHarness, client: str) -> None:
    """As the ledger writes what is retained."""
    meta = Meta(1, RETAIN_FLAG, None, int(gateway.clock() * 1e6), None)
    headers = ingress_headers("0198c0de-0000-7000-8000-000000000000", "$presence", meta, NO_PROPERTIES)
    gateway.harness.bus.produce(
        gateway.harness.topics.retained, 0, f"$presence/{client}".encode(), b"here", headers, lambda *_: None
    )


def test_presence_is_for_those_who_may_subscribe_to_it(tmp_path: Path) -> None:
    """R11, R12: what the operator gives a user; `#` is not enough; nobody may publish there, whatever the rules say."""
    (tmp_path / "acl.toml").write_text(RULES)
    changes = f"authorization.file = '{tmp_path / 'acl.toml'}'\n"
    changes += password_file(tmp_path, guard="secret", alice="secret")

    async def scenario(gateway: ListenerHarness) -> None:
        told(gateway, "al")
        guard = gateway.client("tower", user="guard", password="secret")
        assert await guard.connect(gateway) == "Success"
        assert await guard.subscribe(gateway, "$presence/#") == "Granted QoS 1"
        await gateway.until(lambda: guard.got, "the retained message")
        assert guard.got == [("$presence/al", b"here")]
        alice = gateway.client("al", user="alice", password="secret")
        assert await alice.connect(gateway) == "Success"
        for forbidden in ("$presence/#", "$presence/tower", "$presence/+"):
            assert await alice.subscribe(gateway, forbidden) == "Not authorized", forbidden
        assert await alice.subscribe(gateway, "#") == "Granted QoS 1"
        assert alice.got == [], "no wildcard matches it"
        assert await alice.subscribe(gateway, "$presence/al") == "Granted QoS 1"
        await gateway.until(lambda: alice.got, "the retained message of its own")
        for topic in ("$presence/al", "$presence/tower"):
            shows = ("-u", "alice", "-P", "secret", "-i", "forger", "-t", topic, "-m", "forged")
            assert "Topic Name invalid" in (await gateway.pub(*shows)).said, topic
            assert "Topic Name invalid" in (await gateway.pub(*shows, "-r")).said, topic
        assert not gateway.harness.ids_of(b"forged")
        assert guard.got == [("$presence/al", b"here")]

    with_listeners(tmp_path, changes, scenario)
