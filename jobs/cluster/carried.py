"""Passes settings to a driver that the cluster runs, as environment variables.

A pod has no files of this machine, and a store that both can reach would need a login in both. So the driver uses the
image's `conf/base.toml`, overridden by variables with the settings of the overlays. Everyone who may see a pod sees
these: secrets stay in files, which the pod mounts from Secrets.
"""

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from jobs.cluster.masking import is_secret
from jobs.errors import SubmissionError
from schemas.sections import Section
from schemas.settings import Settings
from schemas.settings_files import ENVIRONMENT_PREFIX

OF_DRIVERS = ("lease_s",)
"""What a driver needs of `[cluster]`; the rest is for the submission, and `spark` may contain secrets."""


def overrides(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that override a setting."""
    return {name: value for name, value in environ.items() if name.startswith(ENVIRONMENT_PREFIX) and "__" in name}


def overlay_variables(overlays: Sequence[Path], settings: Settings) -> dict[str, str]:
    """The settings named in the files, with their values in `settings`, as variables."""
    named: dict[str, str] = {}
    for overlay in overlays:
        for path, value in _leaves(tomllib.loads(overlay.read_text()), settings):
            if path[0] != "cluster" or path[-1] in OF_DRIVERS:
                named[ENVIRONMENT_PREFIX + "__".join(path).upper()] = _as_text(value)
    return named


def refuse_secrets(variables: Iterable[str], settings: Settings) -> None:
    """Raises SubmissionError if one of the variables is a table that contains a secret."""
    for variable in variables:
        path = variable.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
        value: Any = settings
        for key in path:
            value = getattr(value, key, None)
        if isinstance(value, dict) and (secrets := [name for name in value if is_secret(name)]):
            raise SubmissionError(
                f"{'.'.join(path)} has the secret {secrets[0]}, which everyone who can see the application could "
                f'read: with cluster.deploy_mode = "cluster", put it into a file on the driver\'s machine, and name '
                f"that file in kafka.password_file or storage.secret_file"
            )


def _leaves(
    named: Mapping[str, Any], section: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, content in named.items():
        value = getattr(section, key)
        if isinstance(value, Section):
            yield from _leaves(content, value, (*path, key))
        else:
            yield (*path, key), msgspec.to_builtins(value)


def _as_text(value: Any) -> str:
    """In the form that :func:`schemas.settings.load_settings` reads: text unchanged, all else as TOML."""
    return value if isinstance(value, str) else _as_toml(value)


def _as_toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(key)} = {_as_toml(inner)}' for key, inner in value.items())} }}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_as_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
