"""Waystation's version, as metrics and `$SYS/broker/version` report it."""

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """The version of the installed distribution; "unknown" in a source tree that is not installed."""
    try:
        return version("waystation-edge")  # has the same version as waystation, and is always there
    except PackageNotFoundError:
        return "unknown"
