"""A wrong configuration is one sentence that names the key, the value and what is allowed."""

import os
from pathlib import Path

import pytest

from schemas.errors import SettingsError
from schemas.settings import load_settings, process_settings

CONF = Path(__file__).parents[3] / "conf"
BASE = CONF / "base.toml"


def overlay(tmp_path: Path, text: str) -> list[Path]:
    path = tmp_path / "overlay.toml"
    path.write_text(text)
    return [BASE, path]


def test_the_shipped_files_are_valid():
    settings = load_settings([BASE, CONF / "local.toml"], {})
    assert settings.gateway.mqtt_port == 1883
    assert settings.tables == ".waystation/tables"


def test_an_overlay_changes_single_keys(tmp_path):
    settings = load_settings(overlay(tmp_path, "[gateway]\nmqtt_port = 1884\n"), {})
    assert (settings.gateway.mqtt_port, settings.gateway.websocket_port) == (1884, 8083)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[gateway]\nmqtt_port = 70000\n", ["gateway.mqtt_port", "70000", "65535"]),
        ("[gateway]\nmqtt_port = 'x'\n", ["gateway.mqtt_port", "'x'", "int"]),
        ("[gateway]\nmqtt_prot = 1\n", ["[gateway]", "mqtt_prot", "unknown"]),
        ("[gateway.limits]\npacket_bytes = 1\n", ["gateway.limits.packet_bytes", "1", "1024"]),
        ("[gateway]\nwebsocket_path = 'mqtt'\n", ["gateway.websocket_path", "'mqtt'"]),
        ("[gateway]\nresponse_prefix = 'a/+/'\n", ["gateway.response_prefix", "'a/+/'"]),
        ("[gateway]\nresponse_prefix = '$x'\n", ["gateway.response_prefix", "'$x'"]),
        ("[gateway]\ntrusted_proxies = ['10.0.0.1/8']\n", ["gateway.trusted_proxies", "'10.0.0.1/8'", "host bits"]),
        ("[gateway]\nproxy_protocol = true\n", ["gateway.proxy_protocol", "needs gateway.trusted_proxies"]),
        (
            "[gateway.limits]\npacket_bytes = 4194304\n",
            ["gateway.limits.websocket_frame_bytes", "2097152", "at least gateway.limits.packet_bytes = 4194304"],
        ),
        ("[log]\nlevel = 'loud'\n", ["log.level", "'loud'", "debug|info|warning|error"]),
        ("[stack]\nbroker_heap = 'much'\n", ["stack.broker_heap", "'much'"]),
        (
            "[gateway.limits]\nqueue_full = 'never'\n",
            ["gateway.limits.queue_full", "'never'", "drop_oldest|disconnect"],
        ),
        ("[gateway.policy]\nblocked_publish = ['a', 'b/#/c']\n", ["gateway.policy.blocked_publish[1]", "'b/#/c'"]),
        ("[gateway.policy]\ntopic_bytes = [{filter = 'a+', bytes = 1}]\n", ["topic_bytes[0].filter", "'a+'"]),
        ("[gateway.policy.attachments]\ntypes = ['image']\n", ["gateway.policy.attachments.types[0]", "'image'"]),
        ("[gateway.policy.message_rate]\nabove = 'stop'\n", ["message_rate.above", "'stop'", "pause|disconnect"]),
        ("[router]\nbatch_s = 1.0\n", ["router.batch_s", "1.0", "5"]),
        ("[router]\nroute_lead_s = 6.0\n", ["router.route_lead_s", "6", "at least", "17.5"]),
    ],
)
def test_a_wrong_value_names_key_value_and_what_is_allowed(tmp_path, text, named):
    with pytest.raises(SettingsError) as raised:
        load_settings(overlay(tmp_path, text), {})
    for word in named:
        assert word in str(raised.value)


def test_bearers_as_they_may_be(tmp_path):
    text = """[gateway]
websocket_path = "/mqtt"
proxy_protocol = true
trusted_proxies = ["10.0.0.0/8", "192.0.2.1", "fd00::/8"]
response_prefix = "responses/"
"""
    assert load_settings(overlay(tmp_path, text), {}).gateway.proxy_protocol
    override = {"WAYSTATION_GATEWAY__TRUSTED_PROXIES": '["10.0.0.0/8"]'}
    assert load_settings([BASE], override).gateway.trusted_proxies == ["10.0.0.0/8"]


def test_filters_of_policy_as_they_may_be(tmp_path):
    """Q12: every form of a topic filter; sub-tables by the environment."""
    filters = ["#", "/", "+", "a/+/#", "/a//b", "@inbox", "$SYS/#", "+/+", "a b/é"]
    settings = load_settings(
        overlay(tmp_path, f"[gateway.policy]\nblocked_subscribe = {filters}\n"),
        {
            "WAYSTATION_GATEWAY__POLICY__MESSAGE_RATE__MESSAGES_PER_S": "2.5",
            "WAYSTATION_GATEWAY__POLICY__TOPIC_BYTES": '[{filter = "a/#", bytes = 10}]',
        },
    )
    policy = settings.gateway.policy
    assert list(policy.blocked_subscribe) == filters
    assert policy.message_rate.messages_per_s == 2.5
    assert [(limit.filter, limit.bytes) for limit in policy.topic_bytes] == [("a/#", 10)]


def test_a_file_that_is_no_toml_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"overlay\.toml is not valid TOML"):
        load_settings(overlay(tmp_path, "[gateway"), {})


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"nowhere\.toml"):
        load_settings([BASE, tmp_path / "nowhere.toml"], {})


def test_the_environment_overrides():
    settings = load_settings(
        [BASE], {"WAYSTATION_GATEWAY__LIMITS__QUEUE_MESSAGES": "10", "WAYSTATION_LOG__LEVEL": "debug"}
    )
    assert (settings.gateway.limits.queue_messages, settings.log.level) == (10, "debug")


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("WAYSTATION_GATEWAY__MQTT_PROT", "1", ["WAYSTATION_GATEWAY__MQTT_PROT", "mqtt_port"]),
        ("WAYSTATION_GATWAY__MQTT_PORT", "1", ["WAYSTATION_GATWAY__MQTT_PORT", "gatway"]),
        ("WAYSTATION_GATEWAY__MQTT_PORT", "no", ["WAYSTATION_GATEWAY__MQTT_PORT", "'no'"]),
        ("WAYSTATION_GATEWAY__MQTT_PORT", "-1", ["gateway.mqtt_port", "-1", "0"]),
    ],
)
def test_a_wrong_override_names_the_variable_or_the_key(name, value, named):
    with pytest.raises(SettingsError) as raised:
        load_settings([BASE], {name: value})
    for word in named:
        assert word in str(raised.value)


def test_a_process_finds_its_settings_in_its_environment(tmp_path):
    paths = overlay(tmp_path, "[gateway]\nname = 'g7'\n")
    environment = {"WAYSTATION_CONF": os.pathsep.join(map(str, paths)), "WAYSTATION_DATA": "/elsewhere"}
    settings = process_settings({**environment, "WAYSTATION_GATEWAY__MQTT_PORT": "0", "WAYSTATION_PART": "gateway"})
    assert (settings.gateway.name, settings.data, settings.gateway.mqtt_port) == ("g7", "/elsewhere", 0)


def test_a_process_without_files_has_the_installed_defaults():
    assert process_settings({}).gateway.name == "gateway-1"
