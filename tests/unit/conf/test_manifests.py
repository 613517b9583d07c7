"""The Kubernetes manifests: valid by their schemas, and in agreement with topics, settings and ports."""

import copy
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from gateway.cluster.lease_keeper import MOVES_AT_ONCE
from gateway.cluster.timings import LeaseTimings
from jobs.cluster.submission import IN_IMAGE
from jobs.observe.routing import router_listen_address
from jobs.observe.server import ListenAddress
from jobs.stack.broker import ENVELOPE_BYTES
from jobs.stack.topics import declared_topics
from schemas.cluster_settings import router_slots
from schemas.settings import Settings, load_settings
from schemas.topics import NO_GROUP, Topics, lease_group
from tests.unit.conf.manifests import MANIFESTS, ROOT, Manifest, gateway_pod, manifest, manifests, validate

INVALID = (jsonschema.ValidationError, kubernetes_validate.ValidationError)
BASE = tomllib.loads((ROOT / "conf" / "base.toml").read_text())


def named(each: Manifest) -> str:
    return f"{each['kind']}-{each['metadata']['name']}"


@pytest.mark.parametrize("each", manifests(), ids=named)
def test_each_is_valid(each: Manifest) -> None:
    validate(each)


def is_valid(each: Manifest) -> bool:
    try:
        validate(each)
    except INVALID:
        return False
    return True


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all mappings within, down to the fields that Kubernetes knows (not labels and the like)."""
    if isinstance(value, dict):
        yield path
        for key, inner in value.items():
            if key not in FREE:
                yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from places(inner, (*path, number))


FREE = (
    "labels",
    "annotations",
    "matchLabels",
    "selector",
    "data",
    "stringData",
    "config",
    "sparkConf",
    "requests",
    "limits",
)
"""Fields whose keys are anybody's."""
SEEDED = [each for each in manifests() if each["kind"] not in ("KafkaTopic", "ConfigMap", "Secret")]


@pytest.mark.parametrize("each", SEEDED, ids=named)
def test_a_misspelt_field_is_found_anywhere(each: Manifest) -> None:
    """One unknown field is added to each mapping in turn; each time validation refuses."""
    for path in places(each):
        spoilt = copy.deepcopy(each)
        target: Any = spoilt
        for step in path:
            target = target[step]
        target["replicsa"] = 1
        assert not is_valid(spoilt), f"a misspelt field at {path} is not found"


def test_all_files_are_listed() -> None:
    listed = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == sorted(file.name for file in MANIFESTS.glob("*.yaml") if file.name != "kustomization.yaml")


@pytest.fixture(params=["gateway.toml", "spark.toml"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """The configuration that pods see."""
    files = [ROOT / "conf" / "base.toml"]
    for name in ("waystation.toml", request.param):
        files.append(tmp_path / name)
        files[-1].write_text(manifest("ConfigMap", "waystation")["data"][name])
    return load_settings(files, {})


def test_topics_are_as_declared(settings: Settings) -> None:
    """Every topic of `schemas/topics.py`, with its partitions and settings, and no other."""
    found = {
        each["metadata"]["name"]: (each["spec"]["partitions"], each["spec"]["config"])
        for each in manifests("kafka-topics.yaml")
    }
    assert found == {topic.name: (topic.partitions, topic.config) for topic in declared_topics(settings)}


def test_brokers_take_the_largest_packet(settings: Settings) -> None:
    config = manifest("Kafka", "waystation-kafka")["spec"]["kafka"]["config"]
    assert config["message.max.bytes"] >= settings.gateway.limits.packet_bytes + ENVELOPE_BYTES
    assert config["auto.create.topics.enable"] == "false"


def test_users_are_those_of_the_configuration(settings: Settings) -> None:
    acls = acls_of(settings.kafka.client["sasl.username"])
    assert any(acl["resource"]["type"] == "topic" and acl["resource"]["name"] == settings.kafka.prefix for acl in acls)


def acls_of(user: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = manifest("KafkaUser", user)["spec"]["authorization"]["acls"]
    return found


def may_read_group(user: str, group: str) -> bool:
    """librdkafka looks for the coordinator of any group (READ has the right to that in it), and fails if refused."""
    resources = [acl["resource"] for acl in acls_of(user) if "Read" in acl["operations"]]
    return any(
        group.startswith(one["name"]) if one["patternType"] == "prefix" else group == one["name"]
        for one in resources
        if one["type"] == "group"
    )


def test_each_may_use_the_groups_that_it_uses(settings: Settings) -> None:
    """The names of all groups stand in `schemas/topics.py`."""
    user = settings.kafka.client["sasl.username"]
    assert may_read_group(user, NO_GROUP)
    if user == "waystation-spark":
        assert may_read_group(user, lease_group(settings.kafka.prefix, "ledger"))
        assert may_read_group(user, "spark-kafka-source-1")
    assert not may_read_group(user, "somebody-elses")


def test_no_group_has_a_name_of_its_own_elsewhere() -> None:
    """So that the test above sees all of them."""
    found = [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for package in ("gateway", "jobs", "pipelines")
        for file in (ROOT / package).rglob("*.py")
        for line in file.read_text().splitlines()
        if re.search(r"""["']group\.id["']""", line) and not re.search(r"NO_GROUP|lease_group\(", line)
    ]
    assert found == []


def test_the_gateways_ports_are_those_it_listens_on(settings: Settings) -> None:
    """All of its listeners, and none without TLS but that of the metrics. Clients reach only theirs."""
    pod = gateway_pod()
    ports = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}
    gateway = settings.gateway
    listeners = {
        "mqtt": gateway.mqtt_port,
        "ws": gateway.websocket_port,
        "http": gateway.http_port,
        "mqtts": gateway.tls.mqtts_port,
        "wss": gateway.tls.wss_port,
        "https": gateway.tls.https_port,
        "members": gateway.cluster.members_port,
        "links": gateway.cluster.links.port,
        "metrics": gateway.metrics_port,
    }
    assert ports == {name: port for name, port in listeners.items() if port != "off"}
    assert set(ports) == {"mqtts", "wss", "https", "members", "links", "metrics"}
    assert pod["metadata"]["annotations"] == scraped(gateway.metrics_port)
    service = {port["port"] for port in manifest("Service", "waystation-gateway")["spec"]["ports"]}
    assert service == {ports[name] for name in ("mqtts", "wss", "https")}


def scraped(port: object) -> dict[str, str]:
    return {"prometheus.io/scrape": "true", "prometheus.io/port": str(port)}


def test_drivers_metrics_are_reached_and_found(settings: Settings) -> None:
    """From other pods, at the port that the application serves."""
    places = {
        "waystation-router-active": router_listen_address(settings.router, ["active"]),
        "waystation-router-backup": router_listen_address(settings.router, ["backup"]),
        "waystation-ledger": ListenAddress(settings.ledger.metrics_host, settings.ledger.metrics_port, "", ""),
    }
    for name, place in places.items():
        driver = applications()[name]["driver"]
        assert place.host == "0.0.0.0"
        assert driver["ports"] == [{"name": "metrics", "containerPort": place.port, "protocol": "TCP"}]
        assert driver["annotations"] == scraped(place.port)


def test_a_gateway_has_time_to_stop_in_order(settings: Settings) -> None:
    """The pause before SIGTERM, then its shards, even if it has all of them and each is slow, then the stop itself."""
    pod = gateway_pod()["spec"]
    pause_s = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    drain_s = settings.kafka.shards / MOVES_AT_ONCE * LeaseTimings().freeze_s
    assert pod["terminationGracePeriodSeconds"] > pause_s + drain_s + 18


def test_only_gateways_write_what_is_theirs(settings: Settings) -> None:
    """Whoever writes claims or heartbeats decides where clients go."""
    topics, user = Topics(settings.kafka.prefix), settings.kafka.client["sasl.username"]
    for topic in (topics.leases, topics.members, topics.sessions, topics.spool):
        assert may(user, "Read", topic)
        assert may(user, "Write", topic) == (user == "waystation-gateway")
        assert not may("waystation-feed-adapter", "Write", topic)
    for topic in (topics.egress, topics.routes, topics.presence_state):
        assert may(user, "Write", topic)


def test_feed_adapters_may_write_what_their_settings_ask_for(settings: Settings) -> None:
    """S2: all the copies, and beats; some also `ingress`, where a record names its sender."""
    topics = Topics(settings.kafka.prefix)
    for user, is_for_mqtt in (("waystation-feed-adapter", False), ("waystation-feed-adapter-mqtt", True)):
        for topic in (topics.feed("ships"), topics.feeds):
            assert all(may(user, operation, topic) for operation in ("Read", "Write", "Describe"))
        for operation in ("Write", "Describe"):
            assert may(user, operation, topics.ingress) == is_for_mqtt
        assert not any(may(user, "Write", topic) for topic in (topics.egress, topics.leases, topics.spool))


def may(user: str, operation: str, topic: str) -> bool:
    """Whether a user may do this to a topic: a denial goes before what is allowed."""
    found = {
        acl.get("type", "allow")
        for acl in acls_of(user)
        if acl["resource"]["type"] == "topic" and operation in acl["operations"]
        if (acl["resource"]["patternType"] == "prefix" and topic.startswith(acl["resource"]["name"]))
        or topic == acl["resource"]["name"]
    }
    return found == {"allow"}


@pytest.mark.parametrize("part", ["gateway", "spark"])
def test_images_have_all_packages(part: str) -> None:
    """Those that the two distributions are built from: what is not copied is silently not installed."""
    copied = re.findall(r"^COPY (\w+) \./source/\1$", (MANIFESTS / f"Dockerfile.{part}").read_text(), re.MULTILINE)
    wanted = set()
    for file in ("pyproject.toml", "distributions/edge/pyproject.toml"):
        include = tomllib.loads((ROOT / file).read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
        wanted |= {pattern.removesuffix("*") for pattern in include}
    assert wanted <= set(copied)


def claim_at(application: str, path: str) -> str:
    """The name of the claim that a driver has mounted there."""
    spec = applications()[application]
    [volume] = [mount["name"] for mount in spec["driver"]["volumeMounts"] if mount["mountPath"] == path]
    [found] = [each["persistentVolumeClaim"]["claimName"] for each in spec["volumes"] if each["name"] == volume]
    return str(found)


def test_pages_of_the_quality_job_outlive_its_pod(settings: Settings) -> None:
    assert manifest("PersistentVolumeClaim", claim_at("waystation-quality", settings.quality.docs))


def test_what_the_ledger_remembers_outlives_its_pod() -> None:
    """It is as large as traffic makes it, and takes its time to be made anew; two drivers never share it."""
    [data] = [each["value"] for each in applications()["waystation-ledger"]["driver"]["env"] if "DATA" in each["name"]]
    claim = manifest("PersistentVolumeClaim", claim_at("waystation-ledger", data))
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]


def test_a_date_that_failed_is_judged_once_a_night() -> None:
    """Status 1 says that something does not hold: no crash, and another try would only find the same."""
    assert applications()["waystation-quality"]["restartPolicy"] == {"type": "Never"}


def test_files_of_the_configuration_are_mounted() -> None:
    """Every path that the gateway's settings name lies in a volume."""
    [container] = gateway_pod()["spec"]["containers"]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    for text in manifest("ConfigMap", "waystation")["data"].values():
        for path in re.findall(r'"(/etc/waystation/[^"]+)"', text):
            assert any(path == mount or path.startswith(f"{mount}/") for mount in mounts), path


def applications() -> dict[str, Manifest]:
    found = {}
    for file in ("routers.yaml", "ledger.yaml", "batch.yaml"):
        for each in manifests(file):
            if not each["kind"].endswith("SparkApplication"):
                continue
            spec = each["spec"]
            found[each["metadata"]["name"]] = spec["template"] if each["kind"].startswith("Scheduled") else spec
    return found


@pytest.mark.parametrize("name", applications())
def test_applications_start_what_is_in_the_image(name: str) -> None:
    spec = applications()[name]
    assert spec["mainApplicationFile"] == IN_IMAGE
    assert spec["arguments"][0] in {f"jobs.{each}" for each in ("router", "ledger", "maintain", "quality")}
    if spec["arguments"][0] in ("jobs.router", "jobs.ledger"):
        options = BASE["stack"][f"{spec['arguments'][0].removeprefix('jobs.')}_java_options"]
        assert spec["driver"]["javaOptions"].split() == options.split() == spec["executor"]["javaOptions"].split()


def test_the_pair_is_kept_apart(settings: Settings) -> None:
    """No pod of one router on a machine with one of the other; and each query has a task for every partition, with one
    to spare that reads the routes."""
    routers = {role: applications()[f"waystation-router-{role}"] for role in ("active", "backup")}
    for role, other in (("active", "backup"), ("backup", "active")):
        for pod in ("driver", "executor"):
            [term] = routers[role][pod]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            assert term["topologyKey"] == "kubernetes.io/hostname"
            assert term["labelSelector"]["matchLabels"] == routers[other][pod]["labels"]
        assert routers[role]["arguments"] == ["jobs.router", "--role", role]
        executor = routers[role]["executor"]
        needed = router_slots(settings.kafka.ingress_partitions, settings.router.standby_query) + 1
        assert executor["instances"] * executor["cores"] >= needed
        assert float(executor["coreRequest"]) < executor["cores"], "slots are not CPU that a pod has to ask for"


def test_containers_have_no_more_rights_than_they_need() -> None:
    """Not root, no new privileges, no capabilities; the gateway's file system is read-only."""
    pod = gateway_pod()["spec"]
    contexts = [(pod["securityContext"], pod["containers"][0]["securityContext"])]
    contexts += [
        (spec[of]["podSecurityContext"], spec[of]["securityContext"])
        for spec in applications().values()
        for of in ("driver", "executor")
    ]
    for of_pod, of_container in contexts:
        assert of_pod["runAsNonRoot"]
        assert of_container["allowPrivilegeEscalation"] is False
        assert of_container["capabilities"] == {"drop": ["ALL"]}
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"]
