"""The uplink's settings (M19), and a deliverer made of them, over real sockets."""

import asyncio
import re
import tomllib
from pathlib import Path

import pytest

from edge.uplink import assembly
from edge.uplink import settings as uplink_settings
from edge.uplink.settings import UplinkSettings
from schemas.sections import Section
from schemas.validation import convert
from tests import draw
from tests.unit.bundles.keys import bundle, header
from tests.unit.edge.uplink.fake_holder import FakeHolder
from tests.unit.edge.uplink.fake_platform import FakePlatform, now, run_until
from tests.unit.edge.uplink.http_platform import http_platform

EDGE_PAGE = Path(__file__).parents[4] / "docs" / "edge.md"


class File(Section, frozen=True):
    uplink: UplinkSettings = UplinkSettings()


def read(text: str) -> UplinkSettings:
    found = convert(tomllib.loads(text), File)
    assert isinstance(found, File), found
    return found.uplink


def documented() -> str:
    found = re.search(r"```toml\n(\[uplink\].*?)```", EDGE_PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found.group(1)


def test_the_documented_section_has_every_key_with_its_default() -> None:
    """M19."""
    raw = tomllib.loads(documented())["uplink"]
    settings = read(documented())
    assert set(raw) == set(UplinkSettings.__struct_fields__)
    assert set().union(*raw["bearers"]) == set(uplink_settings.BearerSettings.__struct_fields__)
    assert not list(uplink_settings.broken_rules(settings))
    for name in set(raw) - {"bearers"}:
        assert raw[name] == getattr(UplinkSettings(), name), name
    assert [one.after_s for one in uplink_settings.bearers(settings)] == [0.0, 0.0, 600.0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("enabled = true", "needs at least one"),
        ("bearers = [{name='x', url='http://a'}, {name='x', url='http://b'}]", "the name 'x' occurs twice"),
        ("bearers = [{name='x', url='ftp://a'}]", "is not an access point"),
        ("bearers = [{name='x', url='http://a', source_address='eth0'}]", "is not an IP address"),
        ("bearers = [{name='x', url='http://a', interface='a-name-that-is-too-long'}]", "network interface"),
        ("urgent = ['a/#/b']", "neither a topic filter"),
        ("retry_first_s = 70.0", "must not be below"),
        ("key_file = 'key.pem'", "needs uplink.certificate_file"),
    ],
)
def test_what_is_wrong_is_named(text: str, sentence: str) -> None:
    (found,) = uplink_settings.broken_rules(read(f"[uplink]\n{text}"))
    assert sentence in found


def test_urgent_messages_are_named_by_destination() -> None:
    is_urgent = uplink_settings.urgency(read("[uplink]\nurgent = ['alarms/#', '@duty']"))
    assert is_urgent(header(destination="alarms/fire"))
    assert is_urgent(header(destination="@duty"))
    assert not is_urgent(header(destination="meters/1"))


def test_it_delivers_over_http_although_answers_are_cut() -> None:
    """M11, M12: the platform took them, but the answers came to an end at any byte: they are sent again."""
    random = draw.generator("uplink answers")
    platform, holder, cuts = FakePlatform(), FakeHolder("b"), 2

    def cut(request: bytes, answer: bytes) -> bytes:
        nonlocal cuts
        if request.startswith(b"POST /v1/bundles ") and cuts:
            cuts -= 1
            return answer[: random.randrange(len(answer))]
        return answer

    async def scenario() -> None:
        began = now()
        holder.hold(*(bundle(number) for number in range(1, 4)), bundle(1, "b"), since=began)
        async with http_platform(platform, "b", cut) as url:
            settings = read(f"[uplink]\nenabled = true\nbearers = [{{name = 'lan', url = '{url}'}}]")
            agent = assembly.deliverer(holder, settings, tls=None, secret=None)
            await run_until(lambda: not holder.store and not len(holder.reports), agent, most_s=60)
            (status,) = agent.status().bearers
            assert status.delivered == 4
            assert status.bytes_sent > 1_000 < status.bytes_received

    asyncio.run(scenario())
    assert not cuts
    assert sorted(agent for agent, _ in platform.reported("delivered")) == ["b"] * 3
