"""Who has sent a message, by its topic and flags: no client passes for the platform."""

import pytest

from schemas.origin import origin_of


@pytest.mark.parametrize(
    ("topic", "flags", "origin"),
    [
        ("a/b", "", "client"),
        ("a/b", "ar", "client"),
        ("a/b", "wr", "will"),
        ("a/b", "h", "http"),
        ("@c", "p", "platform"),
        ("a/b", "p", "platform"),
        ("a/b", "cn", "client"),
        ("$presence/c", "r", "platform"),
        ("$presence/", "", "platform"),
        ("$presences/c", "", "client"),
        ("a/$presence/c", "", "client"),
        ("@$presence/c", "", "client"),
        ("$cluster/fences", "", "platform"),
        ("$clusters/fences", "", "client"),
    ],
)
def test_origin(topic: str, flags: str, origin: str) -> None:
    assert origin_of(topic, flags) == origin
