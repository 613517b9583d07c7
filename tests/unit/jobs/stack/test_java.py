"""Finding a JDK, with `java` played by shell scripts."""

from pathlib import Path

import pytest

from jobs.errors import JavaError
from jobs.stack.java import Java, check, find_java

JDK_17 = "java.base@17.0.15\njdk.incubator.vector@17.0.15"
JDK_21 = "java.base@21\njdk.incubator.vector@21"
JDK_25 = "java.base@25.0.1\njdk.incubator.vector@25.0.1"
JRE_17 = "java.base@17.0.15\njava.sql@17.0.15"


def jdk(home: Path, modules: str, status: int = 0) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n[ \"$1\" = --list-modules ] && cat <<'END'\n{modules}\nEND\nexit {status}\n")
    java.chmod(0o755)
    return home


@pytest.mark.parametrize(("modules", "version"), [(JDK_17, 17), (JDK_21, 21)])
def test_java_home_is_taken_if_it_fits(tmp_path, modules, version):
    home = jdk(tmp_path / "jdk", modules)
    assert find_java({"JAVA_HOME": str(home)}, ()) == Java(home, version, "JAVA_HOME")


def test_the_path_is_next(tmp_path):
    old, new = jdk(tmp_path / "old", "", status=1), jdk(tmp_path / "new", JDK_17)
    environ = {"JAVA_HOME": str(old), "PATH": f"/nowhere:{new}/bin"}
    java = find_java(environ, ())
    assert (java.home, java.found_by) == (new, "PATH")
    assert java.warning == f"JAVA_HOME: {old} is older than Java 9, or is not Java"


def test_a_java_home_that_is_not_there_is_told(tmp_path):
    """Case 21: another JDK was used without a word."""
    home = jdk(tmp_path / "jdk", JDK_17)
    java = find_java({"JAVA_HOME": "/nonexistent", "PATH": f"{home}/bin"}, ())
    assert java.warning == "JAVA_HOME is /nonexistent, which has no bin/java"
    assert str(java) == f"17 in {home}, found by PATH"
    assert find_java({"PATH": f"/nonexistent:{home}/bin"}, ()).warning is None


def test_a_link_on_the_path_leads_to_its_home(tmp_path):
    home = jdk(tmp_path / "jdk", JDK_17)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}, ()).home == home


def test_the_usual_places_come_last(tmp_path):
    jdk(tmp_path / "jvm" / "a-25", JDK_25)
    home = jdk(tmp_path / "jvm" / "b-17", JDK_17)
    assert find_java({}, (f"{tmp_path}/jvm/*",)).home == home


@pytest.mark.parametrize(
    ("modules", "status", "why"),
    [
        (JDK_25, 0, "is Java 25"),
        (JRE_17, 0, "without the module jdk.incubator.vector"),
        ("", 1, "older than Java 9"),
    ],
)
def test_what_does_not_fit_says_why_and_what_to_do(tmp_path, modules, status, why):
    home = jdk(tmp_path / "jdk", modules, status)
    assert why in str(check(home))
    with pytest.raises(JavaError) as raised:
        find_java({"JAVA_HOME": str(home)}, ())
    assert why in str(raised.value)
    assert "JAVA_HOME" in str(raised.value)


def test_no_java_at_all(tmp_path):
    with pytest.raises(
        JavaError,
        match=r"17 or 21 was found; found: JAVA_HOME is .*/nothing, which has no bin/java: install",
    ):
        find_java({"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path / "nothing")}, ())
