"""How packages are installed: where uv is told to look, and what can be asked for."""

import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools import install

LISTING = """\
:env:.index-url='https://mirror.example'
global.cert='/etc/ssl/ours.pem'
global.index-url='https://elsewhere.example'
install.extra-index-url='https://one.example https://two.example'
search.index='https://not-for-installing.example'
global.timeout=not a literal
"""


def test_settings_of_the_environment_go_over_those_of_files() -> None:
    assert install.pip_settings(LISTING) == {
        "index-url": "https://mirror.example",
        "cert": "/etc/ssl/ours.pem",
        "extra-index-url": "https://one.example https://two.example",
    }


def test_uv_installs_from_where_pip_does(tmp_path: Path) -> None:
    pip = {
        "index-url": "https://mirror.example",
        "extra-index-url": "https://one.example",
        "find-links": f"{tmp_path} {tmp_path}/gone https://wheels.example/",
        "no-index": "true",
        "cert": "/etc/ssl/ours.pem",
        "default-timeout": "180",
    }
    assert install.uv_environment({"HOME": "/"}, pip, is_configured=False) == {
        "HOME": "/",
        "UV_SYSTEM_CERTS": "1",
        "UV_DEFAULT_INDEX": "https://mirror.example",
        "UV_INDEX": "https://one.example",
        "UV_FIND_LINKS": f"{tmp_path},https://wheels.example/",
        "UV_NO_INDEX": "1",
        "SSL_CERT_FILE": "/etc/ssl/ours.pem",
        "UV_HTTP_TIMEOUT": "180",
    }


def test_what_uv_is_told_itself_counts() -> None:
    pip = {"index-url": "https://mirror.example", "cert": "/etc/ssl/ours.pem"}
    own = {"UV_DEFAULT_INDEX": "https://own.example", "SSL_CERT_FILE": "/own.pem", "UV_SYSTEM_CERTS": "0"}
    assert install.uv_environment(own, pip, is_configured=False) == own
    assert "UV_DEFAULT_INDEX" not in install.uv_environment({}, pip, is_configured=True)


@pytest.mark.parametrize("extras", install.EXTRAS.values())
def test_every_extra_is_declared(extras: Sequence[str]) -> None:
    project = tomllib.loads((install.ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras) <= set(project["optional-dependencies"])


def test_the_demo_of_feeds_has_what_its_adapters_need() -> None:
    """They publish straight to Kafka (S1), and `make demo ARGS="--feeds"` installs nothing but the demo's packages."""
    project = tomllib.loads((install.ROOT / "pyproject.toml").read_text())["project"]
    installed = [p for extra in install.EXTRAS["demo"] for p in project["optional-dependencies"][extra]]
    assert any(p.startswith("waystation-edge[kafka]") for p in installed)


def test_a_package_that_is_not_pinned_is_an_error() -> None:
    with pytest.raises(LookupError, match="not pinned"):
        install.pinned("no-such-package")
