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
    ("text", "sentence"),
    [
        (
            "[gateway]\nmqtt_port = 70000",
            'gateway.mqtt_port = 70000 is not allowed: expected a whole number from 0 to 65535, or "off"',
        ),
        (
            "[gateway]\nmqtt_port = 'of'",
            'gateway.mqtt_port = "of" is not allowed: expected a whole number from 0 to 65535, or "off". Did '
            'you mean "off"?',
        ),
        (
            "[gateway]\nmqtt_port = '1884'",
            'gateway.mqtt_port = "1884" is not allowed: expected a whole number from 0 to 65535, or "off". Did '
            "you mean 1884?",
        ),
        ("[gateway]\nmqtt_prot = 1", "gateway.mqtt_prot is not a setting. Did you mean gateway.mqtt_port?"),
        (
            "[gateway]\nproxy_protocol = 'true'",
            'gateway.proxy_protocol = "true" is not allowed: expected true or false. Did you mean true?',
        ),
        ("[gatway]\nmqtt_port = 1", "[gatway] is not a table. Did you mean [gateway]?"),
        ("gateway = 5", "gateway = 5 is not allowed: expected a table, [gateway]"),
        (
            "[gateway]\npacket_bytes = 1",
            "gateway.packet_bytes is not a setting. Did you mean gateway.limits.packet_bytes?",
        ),
        ("[zzz]\na = 1", "[zzz] is not a table. The top level has: audit, cluster, data, "),
        ("[audit]\nzzz = 1", "audit.zzz is not a setting. [audit] has: heap, patience_s"),
        (
            "[gateway.limits]\npacket_bytes = 1",
            "gateway.limits.packet_bytes = 1 is not allowed: expected a whole number from 1024 to 16777216",
        ),
        (
            "[gateway]\nwebsocket_path = 'mqtt'",
            'gateway.websocket_path = "mqtt" is not allowed: expected a path, such as "/mqtt", without ?, # and '
            "spaces; empty: any path",
        ),
        (
            "[gateway]\nresponse_prefix = 'a/+/'",
            'gateway.response_prefix = "a/+/" is not allowed: expected the beginning of a topic',
        ),
        ("[gateway]\nresponse_prefix = '$x'", 'gateway.response_prefix = "$x" is not allowed'),
        (
            "[gateway.tls]\nminimum_version = 1.3",
            'gateway.tls.minimum_version = 1.3 is not allowed: expected one of "1.2", "1.3". Did you mean "1.3"?',
        ),
        (
            "[gateway.authentication]\nmethods = 'password'",
            'gateway.authentication.methods = "password" is not allowed: expected a list in brackets; each '
            'item: one of "password", "jwt", "certificate", "anonymous". Did you mean ["password"]?',
        ),
        ("[gateway.authentication]\nmethods = 'jwt, password'", 'Did you mean ["jwt", "password"]?'),
        (
            "[gateway.authentication]\nmethods = ['passwords']",
            'gateway.authentication.methods[0] = "passwords" is not allowed: expected one of "password", "jwt", '
            '"certificate", "anonymous". Did you mean "password"?',
        ),
        (
            "[gateway.authentication.jwt]\nalgorithms = []",
            "gateway.authentication.jwt.algorithms = [] is not allowed: expected a list in brackets, not empty",
        ),
        (
            "[log]\nlevel = 'warn'",
            'log.level = "warn" is not allowed: expected one of "debug", "info", "warning", "error". Did you '
            'mean "warning"?',
        ),
        (
            "[stack]\nbroker_heap = 'much'",
            'stack.broker_heap = "much" is not allowed: expected a size in megabytes or gigabytes, such as "512m"',
        ),
        ('[stack]\nbroker_heap = "512m\\n"', "stack.broker_heap"),
        ("[stack]\nbroker_heap = 512", "stack.broker_heap = 512 is not allowed: expected a size"),
        (
            "[gateway.limits]\nqueue_full = 'never'",
            'gateway.limits.queue_full = "never" is not allowed: expected one of "drop_newest", "drop_oldest", '
            '"disconnect"',
        ),
        (
            "[gateway.policy]\nblocked_publish = ['a', 'b/#/c']",
            'gateway.policy.blocked_publish[1] = "b/#/c" is not allowed: expected a topic filter',
        ),
        (
            "[gateway.policy]\ntopic_bytes = [{filter = 'a+', bytes = 1}]",
            'gateway.policy.topic_bytes[0].filter = "a+" is not allowed',
        ),
        (
            "[gateway.policy]\ntopic_bytes = [{fliter = 'a', bytes = 1}]",
            "gateway.policy.topic_bytes[0].fliter is not a setting. Did you mean gateway.policy.topic_bytes[0].filter?",
        ),
        (
            "[gateway.policy.attachments]\ntypes = ['image']",
            'gateway.policy.attachments.types[0] = "image" is not allowed: expected a content type',
        ),
        (
            "[gateway.policy.message_rate]\nabove = 'stop'",
            'gateway.policy.message_rate.above = "stop" is not allowed: expected one of "refuse", "pause", '
            '"disconnect"',
        ),
        ("data = ''", 'data = "" is not allowed: expected text, not empty'),
        ("[router]\nbatch_s = 1.0", "router.batch_s = 1.0 is not allowed: expected a number, at least 5"),
        ("[router]\nroute_lead_s = inf", "router.route_lead_s = inf is not allowed: expected a number, above 0"),
        ("[router]\nroute_lead_s = nan", "router.route_lead_s = nan is not allowed: expected a number, above 0"),
        (
            "[kafka]\nretention_days = 2020-01-01",
            "kafka.retention_days = 2020-01-01 is not allowed: expected a whole number, at least 1",
        ),
    ],
)
def test_a_wrong_value_names_file_key_value_and_what_is_allowed(tmp_path, text, sentence):
    with pytest.raises(SettingsError) as raised:
        load_settings(overlay(tmp_path, f"{text}\n"), {})
    assert sentence in str(raised.value)
    assert str(tmp_path / "overlay.toml") in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "sentence", "origins"),
    [
        ("[gateway]\ntrusted_proxies = ['10.0.0.1/8']", "'10.0.0.1/8' is not a network", ["gateway.trusted_proxies"]),
        ("[gateway]\nproxy_protocol = true", "needs gateway.trusted_proxies", ["gateway.proxy_protocol"]),
        (
            "[gateway.http]\narriving_bytes = 10000000\n[gateway.limits]\npacket_bytes = 16777216\n"
            "websocket_frame_bytes = 16777216",
            "gateway.http.arriving_bytes = 10000000 is too small: the largest body would never be taken; "
            "allowed: at least gateway.limits.packet_bytes = 16777216",
            ["gateway.http.arriving_bytes", "gateway.limits.packet_bytes"],
        ),
        (
            "[gateway.limits]\npacket_bytes = 4194304",
            "gateway.limits.websocket_frame_bytes = 2097152 is too small: a frame must hold a packet; "
            "allowed: "
            "at least gateway.limits.packet_bytes = 4194304",
            ["gateway.limits.packet_bytes"],
        ),
        ("[router]\nroute_lead_s = 6.0", "router.route_lead_s = 6 is too short", ["router.route_lead_s"]),
        ("[gateway]\nhost = '0.0.0.0'", "gateway.authentication.methods is empty", ["gateway.host"]),
    ],
)
def test_values_that_do_not_fit_together_name_the_file_of_each(tmp_path, text, sentence, origins):
    with pytest.raises(SettingsError) as raised:
        load_settings(overlay(tmp_path, f"{text}\n"), {})
    assert sentence in str(raised.value)
    for key in origins:
        assert f"{key}: {tmp_path / 'overlay.toml'}" in str(raised.value)


@pytest.mark.parametrize(
    "name", ["", "..", ".hidden", "-x", "a/b", "/etc/x", "../../x", "a\\u0000", "a\\n", "a b", "caf\u00e9", "a" * 201]
)
def test_a_name_of_a_gateway_is_a_file_name(tmp_path, name):
    """The files of its spool are in a directory of that name, below the data directory."""
    with pytest.raises(SettingsError, match=r"gateway\.name = .* is not allowed: expected 1 to 200 letters"):
        load_settings(overlay(tmp_path, f'[gateway]\nname = "{name}"\n'), {})


@pytest.mark.parametrize("name", ["7", "gateway-1", "gw.paris_2", "a" * 200])
def test_names_of_gateways_as_they_may_be(tmp_path, name):
    assert load_settings(overlay(tmp_path, f'[gateway]\nname = "{name}"\n'), {}).gateway.name == name


def test_all_errors_come_at_once(tmp_path):
    text = "[gateway]\nmqtt_prot = 1\nhttp_port = -1\n[log]\nlevel = 'loud'\n"
    with pytest.raises(SettingsError) as raised:
        load_settings(overlay(tmp_path, text), {"WAYSTATION_ROUTER__BATCH": "5"})
    first, *others = str(raised.value).splitlines()
    assert first == "the configuration has 4 errors:"
    for key in ("environment variable WAYSTATION_ROUTER__BATCH", "gateway.mqtt_prot", "gateway.http_port", "log.level"):
        assert (
            len([line for line in others if line.startswith("- ") and f"{key} " in f"{line} ".replace(":", " ")]) == 1
        )


def test_broken_rules_come_at_once_too(tmp_path):
    with pytest.raises(SettingsError) as raised:
        load_settings(overlay(tmp_path, "[gateway]\nhost = '0.0.0.0'\n[router]\nroute_lead_s = 6.0\n"), {})
    assert "the configuration has 2 errors:" in str(raised.value)


SECRET = "hunter2"


@pytest.mark.parametrize(
    ("text", "environment"),
    [
        (f"[kafka]\nclient = '{SECRET}'", {}),
        (f"[kafka.client]\n'sasl.password' = ['{SECRET}']", {}),
        (f"[kafka]\npassword = '{SECRET}'", {}),
        (f"[kafka]\nclient = {{ 'sasl.password' = {SECRET}", {}),
        ("", {"WAYSTATION_KAFKA__CLIENT": f"sasl.password={SECRET}"}),
        ("", {"WAYSTATION_KAFKA__CLIENT": f'{{ "sasl.password" = ["{SECRET}"] }}'}),
        ("", {"WAYSTATION_KAFKA__CLIENT__PASSWORD": SECRET}),
        ("", {"WAYSTATION_KAFKA__PASSWORD": SECRET}),
        ("", {"WAYSTATION_KAFKA_CLIENT": SECRET}),
    ],
)
def test_no_error_shows_what_may_be_a_secret(tmp_path, text, environment):
    with pytest.raises(SettingsError) as raised:
        load_settings(overlay(tmp_path, f"{text}\n"), environment)
    assert SECRET not in str(raised.value)


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


def test_a_file_that_is_no_toml_is_named_with_the_line(tmp_path):
    with pytest.raises(SettingsError, match=r"overlay\.toml is not valid TOML: .*line 2"):
        load_settings(overlay(tmp_path, "[gateway]\nmqtt_port = = 1\n"), {})


@pytest.mark.parametrize("content", [b"[log]\nlevel = '\xff'", b"a = " + b"[" * 10_000])
def test_a_file_that_cannot_be_read_is_named(tmp_path, content):
    path = tmp_path / "overlay.toml"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"overlay\.toml"):
        load_settings([BASE, path], {})
    with pytest.raises(SettingsError, match=f"{tmp_path}: Is a directory"):
        load_settings([BASE, tmp_path], {})


def test_a_byte_order_mark_is_no_error(tmp_path):
    """As editors on Windows write it."""
    path = tmp_path / "overlay.toml"
    path.write_bytes(b"\xef\xbb\xbf[log]\nlevel = 'debug'\n")
    assert load_settings([BASE, path], {}).log.level == "debug"


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"nowhere\.toml"):
        load_settings([BASE, tmp_path / "nowhere.toml"], {})


def test_the_environment_overrides():
    settings = load_settings(
        [BASE], {"WAYSTATION_GATEWAY__LIMITS__QUEUE_MESSAGES": "10", "WAYSTATION_LOG__LEVEL": "debug"}
    )
    assert (settings.gateway.limits.queue_messages, settings.log.level) == (10, "debug")


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("GATEWAY__MQTT_PROT", "1", "gateway.mqtt_prot is not a setting. Did you mean gateway.mqtt_port?"),
        ("GATWAY__MQTT_PORT", "1", "[gatway] is not a table. Did you mean [gateway]?"),
        ("GATEWAY__MQTT_PORT", "no", 'gateway.mqtt_port = "no" is not allowed'),
        ("GATEWAY__MQTT_PORT", "-1", "gateway.mqtt_port = -1 is not allowed: expected a whole number from 0"),
        ("GATEWAY__MQTT_PORT__X", "1", "gateway.mqtt_port must be set as a whole: expected a whole number"),
        ("GATEWAY__LIMITS", "1", "[gateway.limits] is a table: set its keys one by one"),
        ("GATEWAY_MQTT_PORT", "1", "is not a setting. Did you mean WAYSTATION_GATEWAY__MQTT_PORT?"),
        ("GATEWAY__AUTHENTICATION__METHODS", "password", 'Did you mean ["password"]?'),
        ("GATEWAY__PROXY_PROTOCOL", "yes", 'gateway.proxy_protocol = "yes" is not allowed: expected true or false'),
    ],
)
def test_a_wrong_override_names_the_variable_and_the_key(name, value, sentence):
    with pytest.raises(SettingsError) as raised:
        load_settings([BASE], {f"WAYSTATION_{name}": value})
    assert f"environment variable WAYSTATION_{name}" in str(raised.value)
    assert sentence in str(raised.value)


def test_variables_of_others_are_let_be():
    """Kubernetes puts such into every pod beside a Service of these names."""
    others = ("PORT", "SERVICE_HOST", "GATEWAY_PORT", "GATEWAY_SERVICE_HOST", "GATEWAY_PORT_1883_TCP", "CACHE")
    load_settings([BASE], {f"WAYSTATION_{name}": "tcp://10.0.0.1:1883" for name in others})


def test_an_override_has_the_type_of_its_setting():
    environment = {
        "WAYSTATION_GATEWAY__MQTT_PORT": "off",
        "WAYSTATION_GATEWAY__HTTP_PORT": "8081",
        "WAYSTATION_GATEWAY__TLS__MINIMUM_VERSION": "1.3",
        "WAYSTATION_GATEWAY__NAME": "7",
        "WAYSTATION_KAFKA__CLIENT": '{ "a.b" = "c" }',
        "WAYSTATION_ROUTER__STANDBY_QUERY": "false",
        "WAYSTATION_LOG__LEVEL": '"debug"',
    }
    settings = load_settings([BASE], environment)
    gateway = settings.gateway
    assert (gateway.mqtt_port, gateway.http_port, gateway.name) == ("off", 8081, "7")
    assert (gateway.tls.minimum_version, settings.kafka.client, settings.router.standby_query) == (
        "1.3",
        {"a.b": "c"},
        False,
    )
    assert settings.log.level == "debug"


def test_a_process_finds_its_settings_in_its_environment(tmp_path):
    paths = overlay(tmp_path, "[gateway]\nname = 'g7'\n")
    environment = {"WAYSTATION_CONF": os.pathsep.join(map(str, paths)), "WAYSTATION_DATA": "/elsewhere"}
    settings = process_settings({**environment, "WAYSTATION_GATEWAY__MQTT_PORT": "0", "WAYSTATION_PART": "gateway"})
    assert (settings.gateway.name, settings.data, settings.gateway.mqtt_port) == ("g7", "/elsewhere", 0)


def test_a_process_without_files_has_the_installed_defaults():
    assert process_settings({}).gateway.name == "gateway-1"
