"""The settings file: strict, and explained by the file that `init` writes (M19)."""

import re
import tomllib
from pathlib import Path

import pytest

from edge.agent.routes import HERE, Routes
from edge.agent.settings import AgentSettings, client_tls, example, limits, load, server_tls
from edge.agent.settings_rules import broken_rules
from schemas.errors import SettingsError
from schemas.validation import convert, paths, type_of
from tests.documents import ROOT, code_blocks

MINIMAL = 'client_id = "a"\n[platform]\nconnect_points = ["mqtt://127.0.0.1:1883"]\n'


def loaded(directory: Path, text: str) -> AgentSettings:
    (directory / "agent.toml").write_text(text)
    return load(directory / "agent.toml")


def test_the_example_has_every_key_with_its_default(tmp_path: Path) -> None:
    assert loaded(tmp_path, example('van "7"')).client_id == 'van "7"'
    table = tomllib.loads(example("a"))
    for path in paths(AgentSettings):
        value = table
        for name in path:
            assert name in value, path
            value = value[name]
        assert type_of(path, AgentSettings)
    table["platform"]["connect_points"] = []
    assert convert(table, AgentSettings) == AgentSettings(client_id="a")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("[smtp.relay]\nhots = 'x'", r"smtp.relay.hots is not a setting. Did you mean smtp.relay.host\?"),
        ("keep_alive_s = 6\nping_timeout_s = 5", "must be at least 7"),
        ("[smtp.submission]\nport = 99999", "from 0 to 65535"),
        ("[smtp.submission]\nenabled = true", "needs a route"),
        ("[smtp.submission]\nenabled = true\nhost = '0.0.0.0'\n[smtp.routes]\n'b' = 'x'", "other machines"),
        ("[smtp.submission]\nenabled = true\nmessage_bytes = 999999\n[smtp.routes]\n'b' = 'x'", "envelope"),
        ("[smtp.relay]\nenabled = true", "smtp.relay.domains is empty"),
        ("[smtp.relay]\nusername = 'u'\nenabled = true\ndomains = ['b']", "password_file"),
        ("[folders]\nenabled = true", "needs an inbox"),
        ("[folders.outboxes]\n'out' = 'a/#'", "not a topic"),
        ("[mqtt.listener]\nenabled = true", "mqtt.listener needs a route"),
        ("[mqtt.routes]\n'a/#/b' = 'platform'", "'a/#/b' is not a topic filter"),
        ("[mqtt.routes]\n'a' = 'nowhere'", "'nowhere', for 'a', is not platform"),
        ("[mqtt.routes]\n'#' = 'local'\n[mqtt.listener]\nenabled = true\nhost = '0.0.0.0'", "other machines"),
        ("[mqtt.routes]\n'#' = 'local'\n[mqtt.listener]\nenabled = true\npacket_bytes = 999999", "envelope"),
        ("[mqtt.routes]\n'#' = 'local'\n[mqtt.listener]\nenabled = true\nplatform_prefix = '+/'", "platform_prefix"),
        ("[mqtt.broker]\nenabled = true\nconnect_point = 'b:1883'", "mqtt.broker.connect_point"),
        ("[mqtt.broker]\nenabled = true\nusername = 'u'", "mqtt.broker.password_file"),
        ("[mqtt.broker]\nenabled = true\n[mqtt.broker.subscriptions]\n'a' = 'far'", "is not @ and a client id"),
        ("[mesh]\npeers = ['b']", "mesh.peers: 'b' is not"),
        ("[mesh]\nenabled = true\nbundle_bytes = 1_000_000", "mesh.bundle_bytes = 1000000 is too small"),
        ("[mesh]\nenabled = true\ninbox_bytes = 1", "mesh.inbox_bytes must not be below"),
        (
            "[mesh]\nenabled = true\n[smtp.routes]\n'b' = 'x'\n[smtp.submission]\nenabled = true\nrecipients = 1_000",
            "990",
        ),
        ("[uplink]\nenabled = true\nbearers = [{ name = 'a', url = 'http://g' }]", "uplink.enabled needs mesh.enabled"),
        ("[mesh]\nenabled = true\n[uplink]\nenabled = true", "uplink.enabled needs at least one"),
        (
            "[mesh]\nenabled = true\ncarry = false\n[uplink]\nenabled = true\nfetch = true",
            "uplink.fetch needs mesh.carry",
        ),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, more: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        loaded(tmp_path, MINIMAL + more)


def test_an_agent_of_a_mesh_needs_no_platform(tmp_path: Path) -> None:
    """M19"""
    assert not loaded(tmp_path, "client_id = 'a'\n[mesh]\nenabled = true").platform.is_set
    with pytest.raises(SettingsError, match=r"or mesh\.enabled = true"):
        loaded(tmp_path, "client_id = 'a'")
    subscribes = "[mqtt.listener]\nenabled = true\nplatform_subscriptions = true"
    with pytest.raises(SettingsError, match="platform_subscriptions needs platform"):
        loaded(tmp_path, f"client_id = 'a'\n[mesh]\nenabled = true\n{subscribes}")


def test_the_uplink_as_documented(tmp_path: Path) -> None:
    """M19: the section of docs/edge.md is that of the class."""
    text = next(one for one in code_blocks((ROOT / "docs/edge.md").read_text(), "toml") if one.startswith("[uplink]"))
    found = loaded(tmp_path, f"client_id = 'a'\n[mesh]\nenabled = true\n{text}")
    assert [one.name for one in found.uplink.bearers] == ["lan", "cellular", "satellite"]


@pytest.mark.parametrize(
    "text",
    [text for page in ("edge", "agent") for text in code_blocks((ROOT / f"docs/{page}.md").read_text(), "toml")],
)
def test_each_example_of_the_pages_is_accepted(text: str) -> None:
    """M19: whole files as they stand; of a part of a file, with a name and a platform."""
    table = tomllib.loads(text)
    table.setdefault("client_id", "a")
    if "uplink" in table:
        table.setdefault("mesh", {"enabled": True})
    if not table.get("mesh", {}).get("enabled"):
        table.setdefault("platform", {"connect_points": ["mqtt://127.0.0.1:1883"]})
    assert not list(broken_rules(convert(table, AgentSettings)))


def test_a_tls_file_that_is_missing_is_named(tmp_path: Path) -> None:
    there = tmp_path / "there.pem"
    there.write_text("no certificate")
    with pytest.raises(SettingsError, match=r"^platform\.ca_file = '/nowhere\.pem' cannot be read: No such file"):
        client_tls("platform", "/nowhere.pem")
    with pytest.raises(SettingsError, match=r"^mqtt\.listener\.key_file = '/nowhere\.pem' cannot be read"):
        server_tls("mqtt.listener", str(there), "/nowhere.pem")
    with pytest.raises(SettingsError, match=r"^the TLS files of \[platform\] cannot be used"):
        client_tls("platform", str(there))


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    found = loaded(tmp_path, MINIMAL + "[folders]\nenabled = true\ninbox = 'in'\n[folders.outboxes]\n'out' = '@b'")
    assert found.store.directory == str(tmp_path / "agent")
    assert found.folders.inbox == str(tmp_path / "in")
    assert found.folders.outboxes == {str(tmp_path / "out"): "@b"}


def test_routes() -> None:
    routes = Routes({"B.example": "b", "*": "rest"}, ["own.example"])
    assert [routes.of(f"x@{domain}") for domain in ("b.EXAMPLE", "own.example", "c.example")] == ["b", HERE, "rest"]
    assert Routes({}, []).of("x@c") is None
    assert Routes({"b": "b"}, ["*"]).grouped(["1@b", "2@b", "3@c"]) == {"b": ["1@b", "2@b"], HERE: ["3@c"]}


def test_each_key_of_the_example_is_explained() -> None:
    """A comment on its line, or above its group."""
    lines = [line for line in example("a").splitlines() if re.match(r"[a-z_]+ = ", line)]
    assert sum("#" in line for line in lines) > len(lines) / 2


def test_when_a_gateway_counts_as_unreachable_is_configured(tmp_path: Path) -> None:
    """M3"""
    found = limits(loaded(tmp_path, MINIMAL + "connect_timeout_s = 3.0\nping_timeout_s = 4.0"))
    assert (found.connect_timeout_s, found.ping_timeout_s) == (3.0, 4.0)
