"""Policies for tests: the shipped settings, and what is changed in them."""

from typing import Any

import msgspec

from schemas.policy_settings import PolicySettings
from schemas.settings import process_settings


def policy(**changes: Any) -> PolicySettings:
    """The shipped policy with `changes`, as a configuration file would say them: tables are laid over tables."""
    settings = msgspec.to_builtins(process_settings({}).gateway.policy)
    for key, value in changes.items():
        settings[key] = {**settings[key], **value} if isinstance(value, dict) else value
    return msgspec.convert(settings, PolicySettings)
