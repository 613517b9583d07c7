"""The manifests of gateways that share the shards: each has its name, its addresses, its certificate and its volume."""

import re
from collections.abc import Mapping
from pathlib import Path

from schemas.settings import GatewaySettings, load_settings
from tests.unit.conf.manifests import ROOT, gateway_pod, manifest


def pod_names() -> list[str]:
    return [f"waystation-gateway-{n}" for n in range(manifest("StatefulSet", "waystation-gateway")["spec"]["replicas"])]


def expanded(text: str, environ: Mapping[str, str]) -> str:
    """As Kubernetes does it: with variables that stand before."""
    return re.sub(r"\$\((\w+)\)", lambda found: environ[found[1]], text)


def environ_of(pod: str, zone: str = "") -> dict[str, str]:
    """What a gateway's container gets; `zone`: the pod's label, "" if there is none."""
    fields = {"metadata.name": pod, "metadata.labels['topology.kubernetes.io/zone']": zone}
    found: dict[str, str] = {}
    for each in gateway_pod()["spec"]["containers"][0]["env"]:
        given = each["value"] if "value" in each else fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        found[each["name"]] = expanded(given, found)
    return found


def of_pod(pod: str, tmp_path: Path, zone: str = "") -> GatewaySettings:
    """The settings of a pod's gateway, its environment included."""
    files = [ROOT / "conf" / "base.toml"]
    for name in ("waystation.toml", "gateway.toml"):
        files.append(tmp_path / name)
        files[-1].write_text(manifest("ConfigMap", "waystation")["data"][name])
    named = environ_of(pod, zone)
    environ = {name: value for name, value in named.items() if name not in ("WAYSTATION_CONF", "WAYSTATION_DATA")}
    return load_settings(files, environ).gateway


def test_several_gateways_share_the_shards(tmp_path: Path) -> None:
    """G4, G14: each with a name of its own, so that each shard has standbys also while one pod is updated."""
    spec = manifest("StatefulSet", "waystation-gateway")["spec"]
    found = [of_pod(pod, tmp_path) for pod in pod_names()]
    assert all(gateway.cluster.enabled for gateway in found)
    assert [gateway.name for gateway in found] == pod_names()
    assert spec["replicas"] >= found[0].cluster.standbys + 2
    assert spec["updateStrategy"]["type"] == "RollingUpdate"
    budget = manifest("PodDisruptionBudget", "waystation-gateway")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"] == gateway_pod()["metadata"]["labels"] == spec["selector"]["matchLabels"]


def test_each_gateway_has_a_volume_that_no_other_pod_mounts() -> None:
    """It is a cache, and goes with its pod's number."""
    spec = manifest("StatefulSet", "waystation-gateway")["spec"]
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Delete", "whenScaled": "Delete"}
    mounted = {mount["name"]: mount["mountPath"] for mount in gateway_pod()["spec"]["containers"][0]["volumeMounts"]}
    assert mounted[claim["metadata"]["name"]] == environ_of("any")["WAYSTATION_DATA"]


def test_gateways_are_kept_apart(tmp_path: Path) -> None:
    """Never on one machine; in different zones as far as there are some, and each says in which it is."""
    spec, labels = gateway_pod()["spec"], gateway_pod()["metadata"]["labels"]
    [term] = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    [spread] = spec["topologySpreadConstraints"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert spread["topologyKey"] == "topology.kubernetes.io/zone"
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
    assert term["labelSelector"]["matchLabels"] == spread["labelSelector"]["matchLabels"] == labels
    assert of_pod("waystation-gateway-0", tmp_path, "zone-b").cluster.zone == "zone-b"
    assert of_pod("waystation-gateway-0", tmp_path).cluster.zone == ""


def test_gateways_find_one_another(tmp_path: Path) -> None:
    """By the names that the headless Service gives their pods, also before they are ready; nobody else gets in."""
    service = manifest("Service", "waystation-gateway-members")["spec"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True
    assert manifest("StatefulSet", "waystation-gateway")["spec"]["serviceName"] == "waystation-gateway-members"
    ports = {port["name"]: port["port"] for port in service["ports"]}
    for pod in pod_names():
        gateway = of_pod(pod, tmp_path)
        host = f"{pod}.waystation-gateway-members"
        assert gateway.cluster.advertise_members == f"{host}:{gateway.cluster.members_port}"
        assert gateway.advertise.console == f"{host}:{gateway.metrics_port}"
        links = gateway.cluster.links
        assert links.advertise == f"{host}:{links.port}"
        of_members = {"members": gateway.cluster.members_port, "links": links.port}
        assert ports == {**of_members, "metrics": gateway.metrics_port}
    labels = {"podSelector": {"matchLabels": gateway_pod()["metadata"]["labels"]}}
    policy = manifest("NetworkPolicy", "waystation-gateway")["spec"]
    inward = [rule.get("from") for rule in policy["ingress"] if {"port": "members"} in rule["ports"]]
    outward = [rule["to"] for rule in policy["egress"] if {"port": "members"} in rule["ports"]]
    assert inward == outward == [[labels]]


def test_each_gateway_has_its_own_certificate_for_the_others(tmp_path: Path) -> None:
    """And sees no other one's key (R11)."""
    secret = manifest("Secret", "waystation-gateway-members")["stringData"]
    for pod in pod_names():
        mounts = {
            mount["mountPath"]: expanded(mount.get("subPathExpr", mount.get("subPath", "")), environ_of(pod))
            for mount in gateway_pod()["spec"]["containers"][0]["volumeMounts"]
            if mount["name"] == "members"
        }
        assert [mounts.pop(path) for path in of_pod(pod, tmp_path).cluster.members_files] == [
            f"{pod}.crt",
            f"{pod}.key",
            "ca.crt",
        ]
        assert not mounts
        assert {f"{pod}.crt", f"{pod}.key", "ca.crt"} <= secret.keys()
