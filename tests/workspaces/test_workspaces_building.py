"""Images made by docker and by podman, for later sessions."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.docker_here import IMAGE, needs_docker
from support.processes import running

from pytest_agentbench.errors import SandboxError, UnavailableError
from pytest_agentbench.workspaces.containers.builder import ImageBuilder

pytestmark = [pytest.mark.slow, needs_docker]


@pytest.fixture(params=["docker", "podman"])
def builder(request: pytest.FixtureRequest) -> Iterator[ImageBuilder]:
    engine = None if request.param == "docker" else request.getfixturevalue("real_podman")
    with closing(ImageBuilder(engine)) as made:
        yield made


@pytest.fixture
def name(builder: ImageBuilder) -> Iterator[str]:
    name = f"localhost/agentbench-test-building:{secrets.token_hex(4)}"
    yield name
    for each in (name, f"{name}.more"):
        builder.remove(each)


def test_an_image_is_built_found_run_named_and_removed(builder: ImageBuilder, name: str, tmp_path: Path) -> None:
    (tmp_path / "said").write_text("hello\n")
    assert builder.find(name) is None
    builder.build(name, f"FROM {IMAGE}\nCOPY said /said\nENTRYPOINT []\n", tmp_path, {"of": "a test = 1"})
    found = builder.find(name)
    assert found is not None
    assert found.labels["of"] == "a test = 1"
    assert builder.run(name, "cat", ["/said"]) == (0, "hello\n")

    builder.tag(name, f"{name}.more")
    builder.remove(name)
    builder.remove(name)
    assert builder.find(name) is None
    assert builder.find(f"{name}.more") == found


def test_a_check_of_an_image_has_no_network_and_a_read_only_root(builder: ImageBuilder, name: str) -> None:
    builder.tag(IMAGE, name)
    code, said = builder.run(name, "sh", ["-c", "exec 2>&1; ls /sys/class/net; echo x > /x"])
    assert code != 0
    assert said.splitlines()[0] == "lo"
    assert "Read-only file system" in said


def test_an_endless_check_of_an_image_is_killed_and_removed(
    builder: ImageBuilder, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_agentbench.workspaces.containers.builder.CHECK_SECONDS", 1)
    builder.build(name, f"FROM {IMAGE}\nENTRYPOINT []\n", tmp_path, {})
    seconds = str(10**9 + secrets.randbelow(10**9))  # the same test may run for the other engine
    with pytest.raises(SandboxError):
        builder.run(name, "sleep", [seconds])
    assert not running(f"sleep {seconds}")


def test_a_failed_build_is_an_error_with_the_reason(builder: ImageBuilder, name: str, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="the reason"):
        builder.build(name, f"FROM {IMAGE}\nRUN echo the reason >&2; exit 3\n", tmp_path, {})
    assert builder.find(name) is None


def test_an_image_of_nowhere_cannot_be_pulled(builder: ImageBuilder) -> None:
    missing = "localhost:1/agentbench-none:1"
    with pytest.raises(UnavailableError, match=f"the image '{missing}' is not on this machine and cannot be pulled"):
        builder.pull(missing)
