"""Who may use what operators use over HTTP: the admin API, the console, and the ledger's journeys."""

from pathlib import Path

import pytest

from schemas.operator_access import ADMIN_API, JOURNEYS, Guarded, TokenError, as_bearer, bearer, read_token, refusal

TOKEN = "0123456789abcdef-not-a-real-one"
LOCAL = {"Host": "127.0.0.1:9464"}


@pytest.mark.parametrize(
    ("token", "headers", "peer", "status"),
    [
        (None, LOCAL, "127.0.0.1", None),
        (None, {"Host": "localhost"}, "::1", None),
        (None, {"Host": "[::1]:9464"}, "::ffff:127.0.0.1", None),
        (None, LOCAL, "192.0.2.7", 403),
        (None, {"Host": "strange.example:9464"}, "127.0.0.1", 403),
        (None, {}, "127.0.0.1", 403),
        (None, LOCAL | {"X-Forwarded-For": "192.0.2.7"}, "127.0.0.1", 403),
        (None, LOCAL, "", 403),
        (TOKEN, LOCAL, "127.0.0.1", 401),
        (TOKEN, {"Authorization": f"Bearer {TOKEN}"}, "192.0.2.7", None),
        (TOKEN, {"Authorization": f"bearer  {TOKEN} "}, "192.0.2.7", None),
        (TOKEN, {"Authorization": f"Basic {TOKEN}"}, "127.0.0.1", 401),
        (TOKEN, {"Authorization": f"Bearer {TOKEN}x"}, "127.0.0.1", 401),
        (TOKEN, {"Authorization": "Bearer \udcff"}, "127.0.0.1", 401),
        (TOKEN, {"Authorization": "Bearer "}, "127.0.0.1", 401),
    ],
)
@pytest.mark.parametrize("guarded", [ADMIN_API, JOURNEYS], ids=["admin", "journeys"])
def test_who_may_come_in(
    guarded: Guarded, token: str | None, headers: dict[str, str], peer: str, status: int | None
) -> None:
    """Programs on this machine without a token, or whoever shows it: no page in a browser, nothing from a proxy."""
    refused = refusal(guarded, token.encode() if token else None, headers, peer)
    assert (None if refused is None else refused.status) == status
    if refused is not None:
        assert guarded.setting in refused.sentence
        assert TOKEN not in refused.sentence


def test_what_shows_a_token_is_let_in() -> None:
    for header in (bearer(TOKEN.encode()), as_bearer(f"bearer {TOKEN}")):
        assert refusal(JOURNEYS, TOKEN.encode(), {"Authorization": header}, "192.0.2.7") is None
    assert as_bearer("Digest x") == ""


def test_a_token_is_long_enough_and_never_in_an_error(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(TokenError, match=r"ledger\.token_file = .* cannot be read"):
        read_token(JOURNEYS.setting, str(file))
    file.write_text("short-secret")
    with pytest.raises(TokenError, match="has 12 characters: a token needs at least 16") as raised:
        read_token(JOURNEYS.setting, str(file))
    assert "short-secret" not in str(raised.value)
    file.write_text(f"\n {TOKEN} \n")
    assert read_token(JOURNEYS.setting, str(file)) == TOKEN.encode()
