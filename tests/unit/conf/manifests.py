"""The Kubernetes manifests as they are committed, and their validation without a cluster."""

import json
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

ROOT = Path(__file__).parents[3]
MANIFESTS = ROOT / "conf" / "kubernetes"
KUBERNETES = "1.34"
METADATA = {
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}

Manifest = dict[str, Any]


def manifests(file: str | None = None) -> list[Manifest]:
    """Those of one file, or of all that `kustomization.yaml` lists."""
    listed = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["resources"]
    files = [file] if file else listed
    return [each for name in files for each in deepcopy(_parsed(name))]


def manifest(kind: str, name: str) -> Manifest:
    [found] = [each for each in manifests() if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


@cache
def _parsed(file: str) -> list[Manifest]:
    return list(yaml.safe_load_all((MANIFESTS / file).read_text()))


def validate(manifest: Manifest) -> None:
    """Against the schema of its kind, which knows no fields but its own. Raises ValidationError of either library."""
    validator = _validator(manifest["kind"])
    if validator is None:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    else:
        validator.validate(manifest)


@cache
def _validator(kind: str) -> jsonschema.Draft202012Validator | None:
    """Of a custom resource; None for one of Kubernetes' own."""
    custom = Path(__file__).parent / "crds" / f"{kind}.json"
    if not custom.exists():
        return None
    definition = json.loads(custom.read_text())
    schema = closed(definition["schema"])
    schema["properties"] |= {
        "apiVersion": {"const": definition["apiVersion"]},
        "kind": {"const": definition["kind"]},
        "metadata": METADATA,
    }
    schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
    return jsonschema.Draft202012Validator(schema)


def closed(schema: Any) -> Any:
    """A structural schema that refuses what the API server would silently drop: fields that it does not know."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    is_open = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" and not is_open:
        found["additionalProperties"] = False
    return found


def gateway_pod() -> Manifest:
    found: Manifest = manifest("StatefulSet", "waystation-gateway")["spec"]["template"]
    return found
