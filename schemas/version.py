"""Waystation's version, as metrics and `$SYS/broker/version` report it."""

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """The version of the installed distribution; "unknown" in a source tree that is not installed."""
    try:
        return version("waystation")
    except PackageNotFoundError:
        return "unknown"
