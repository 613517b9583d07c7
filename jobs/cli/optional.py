"""Packages that only some commands need, and that `make demo` does not install."""

from importlib.util import find_spec

from jobs.errors import JobError


def require(package: str, extra: str, error: type[JobError]) -> None:
    """Raises `error` if the package, part of the optional dependencies `extra`, is not installed."""
    if find_spec(package) is None:
        raise error(
            f"`waystation {extra}` needs the Python package {package}: run `make env`, or "
            f"pip install 'waystation[{extra}]'"
        )
