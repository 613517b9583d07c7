"""Forms of the console: only a page of this console, in a browser that says so, can send them."""

import pytest

from gateway.console.form_tokens import FormTokens, is_same_origin

HOST = {"Host": "gateway.example:9464"}
OWN = HOST | {"Origin": "http://gateway.example:9464"}


@pytest.mark.parametrize(
    ("headers", "is_allowed"),
    [
        (OWN, True),
        (OWN | {"Sec-Fetch-Site": "same-origin"}, True),
        (HOST | {"Origin": "https://gateway.example:9464"}, True),  # a proxy ends TLS
        (OWN | {"Sec-Fetch-Site": "cross-site"}, False),
        (OWN | {"Sec-Fetch-Site": "same-site"}, False),
        (HOST, False),
        (HOST | {"Origin": "null"}, False),
        (HOST | {"Origin": "http://gateway.example"}, False),
        (HOST | {"Origin": "http://evil.example"}, False),
        (HOST | {"Origin": "http://gateway.example:9464.evil.example"}, False),
        (HOST | {"Origin": "http://[broken"}, False),
        ({"Origin": "http://gateway.example:9464"}, False),
        ({"Origin": "file://"}, False),
    ],
)
def test_the_origin(headers: dict[str, str], is_allowed: bool) -> None:
    assert is_same_origin(headers) == is_allowed


def test_a_token_is_for_one_form_of_one_process() -> None:
    tokens = FormTokens()
    token = tokens.make("/console/kick?client=a")
    assert tokens.is_valid("/console/kick?client=a", token)
    assert not tokens.is_valid("/console/kick?client=b", token)
    assert not tokens.is_valid("/console/end?client=a", token)
    assert not tokens.is_valid("/console/kick?client=a", "")
    assert not tokens.is_valid("/console/kick?client=a", "é\udcff")
    assert not FormTokens().is_valid("/console/kick?client=a", token)
