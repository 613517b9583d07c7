"""Access rules for those who answer requests over HTTP (R6, R11)."""

from gateway.access.acl import parse
from gateway.shard.arrivals import REPLY_CLIENTS

RULES = """
[[rules]]
users = ["gates"]
publish.allow = ["@http-request/#"]
"""


def test_one_rule_lets_a_responder_answer_and_nothing_else() -> None:
    """docs/http.md says so."""
    allowed = parse(RULES, "acl", default=False).publishing("gates", "gates")
    assert allowed.allows(f"@{REPLY_CLIENTS}{'0' * 32}")
    assert not allowed.allows("@alice")
    assert not allowed.allows("@http-ann")
    assert not allowed.allows("gates/which")
    assert not parse(RULES, "acl", default=False).publishing("bob", "bob").allows(f"@{REPLY_CLIENTS}{'0' * 32}")
