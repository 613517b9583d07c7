"""Settings of the console: where applications serve their metrics."""

import msgspec
import pytest

from schemas.console_settings import ConsoleSettings


@pytest.mark.parametrize("address", ["127.0.0.1:9465", "router.example.org:9465", "[::1]:9467"])
def test_addresses(address: str) -> None:
    content = {"enabled": True, "applications": [address]}
    assert msgspec.convert(content, ConsoleSettings).applications == [address]


@pytest.mark.parametrize("address", ["", "host", "http://host:1", "host:1/path", "user@host:1", "::1:9467", "host:1\n"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"enabled": True, "applications": [address]}, ConsoleSettings)
