"""Settings of conversations (R6)."""

from typing import Any

import msgspec
import pytest

from schemas.errors import SettingsError
from schemas.share_settings import SharesSettings, check_shares

FINE: dict[str, Any] = {
    "conversations": 10,
    "conversation_id_bytes": 10,
    "conversation_s": 60,
    "conversation_offline_s": 60,
    "conversation_waiting": 10,
}


def test_messages_wait_no_longer_than_a_conversation_lasts() -> None:
    check_shares(msgspec.convert(FINE, SharesSettings))
    with pytest.raises(SettingsError, match=r"conversation_offline_s = 61 is too long.*at most.* = 60"):
        check_shares(msgspec.convert(FINE | {"conversation_offline_s": 61}, SharesSettings))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("conversations", -1),
        ("conversations", 100_001),
        ("conversation_id_bytes", 0),
        ("conversation_id_bytes", 1_025),
        ("conversation_s", 0),
        ("conversation_offline_s", -1),
        ("conversation_waiting", 0),
        ("conversation_waiting", 10_001),
    ],
)
def test_what_is_out_of_bounds_is_refused(key: str, value: int) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(FINE | {key: value}, SharesSettings)
