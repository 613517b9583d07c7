"""The lists of JVM libraries name what is wanted, each library in one version."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from jobs.stack.jars import LOCAL, STORES, JarSet, ivy_file
from tools.lock_jars import WANTED, Library, listing

SETS = pytest.mark.parametrize("jar_set", [LOCAL, *STORES.values()], ids=lambda jar_set: jar_set.file)


def dependencies(file: Path) -> list[ElementTree.Element]:
    return list(ElementTree.parse(file).iter("dependency"))


@SETS
def test_what_is_wanted_is_listed_in_its_version(jar_set: JarSet) -> None:
    listed = {(d.get("org"), d.get("name")): d.get("rev") for d in dependencies(ivy_file(jar_set))}
    for wanted in dependencies(WANTED / jar_set.file):
        assert listed[wanted.get("org"), wanted.get("name")] == wanted.get("rev")


@SETS
def test_a_list_is_complete_as_it_is(jar_set: JarSet) -> None:
    """Nothing is looked for behind it, and a configuration has one version of each library."""
    found = dependencies(ivy_file(jar_set))
    assert {d.get("transitive") for d in found} == {"false"}
    assert {(d.get("conf") or "").partition("->")[0] for d in found} == set(jar_set.confs)
    named = [(d.get("conf"), d.get("org"), d.get("name")) for d in found]
    assert len(set(named)) == len(named)


def test_a_list_is_read_as_it_was_written(tmp_path: Path) -> None:
    libraries = [Library("spark", 'o"&', "n", "1"), Library("kafka", "o", "n", "2")]
    (tmp_path / "list.xml").write_text(listing(LOCAL, libraries))
    read = [(d.get("conf"), d.get("org"), d.get("name"), d.get("rev")) for d in dependencies(tmp_path / "list.xml")]
    assert read == [("spark->default", 'o"&', "n", "1"), ("kafka->default", "o", "n", "2")]
