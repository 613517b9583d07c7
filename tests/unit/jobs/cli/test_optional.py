"""Packages that only some commands need."""

import pytest

from jobs.cli.optional import require
from jobs.errors import QualityError


def test_what_is_missing_says_how_to_install_it() -> None:
    with pytest.raises(
        QualityError, match="`waystation quality` needs the Python package no_such_package: run `make env`"
    ):
        require("no_such_package", "quality", QualityError)


def test_what_is_there_is_no_error() -> None:
    require("pyspark", "quality", QualityError)
