"""What podman is told of a container, and what is refused of what it says that it made of it."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.containers import podman
from pytest_agentbench.workspaces.sandboxes.base import Mount

CONFIG: dict[str, Any] = {
    "Memory": 2**31,
    "MemorySwap": 2**31,
    "NanoCpus": 1_500_000_000,
    "PidsLimit": 528,
    "ReadonlyRootfs": True,
    "NetworkMode": "none",
    "Init": True,
    "Mounts": [{"Target": "/workspace"}],
    "SecurityOpt": ["no-new-privileges", "seccomp={}"],
    "Tmpfs": {"/data": ""},
    "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
}
USER = "65534:65534"
ROOT, ORDINARY, OLD = (
    {"Rootless": False, "CgroupVersion": "1"},
    {"Rootless": True, "CgroupVersion": "2"},
    {"Rootless": True, "CgroupVersion": "1"},
)


def told(info: dict[str, Any] = ROOT, mounts: tuple[tuple[Mount, bool], ...] = ()) -> dict[str, Any]:
    return podman.host_config(CONFIG, mounts, Path("/session/profile.json"), info)


def made(**changes: Any) -> dict[str, Any]:
    """What podman says of a container that is what it was told."""
    host = told() | {"Tmpfs": dict.fromkeys(told()["Tmpfs"], "ro,rprivate,nosuid"), "CapAdd": []}
    config = {"User": USER, "Env": ["PATH=/bin", "https_proxy="]}
    found: dict[str, Any] = {"HostConfig": host, "Config": config, "Mounts": [{"Type": "bind", "Destination": "/"}]}
    for part, change in changes.items():
        found[part] = found[part] | change if isinstance(change, dict) else change
    return found


def test_podman_gets_different_mounts_and_users_than_docker(tmp_path: Path) -> None:
    mounts = ((Mount(tmp_path, "/workspace"), True), (Mount(tmp_path, "/a, b"), False))
    host = told(mounts=mounts)
    assert host["SecurityOpt"] == ["no-new-privileges", "label=disable", "seccomp=/session/profile.json"]
    assert host["Binds"] == [f"{tmp_path}:/workspace:rw", f"{tmp_path}:/a, b:ro"]
    assert host["Tmpfs"] == {"/run": "ro", "/var/tmp": "ro", "/data": ""}
    assert {"Mounts", "Init", "UsernsMode"} & {*host} == set()
    assert told(ORDINARY)["UsernsMode"] == "keep-id"
    assert CONFIG["Mounts"], "docker's own stays as it is"


def test_no_limit_is_above_those_of_this_process() -> None:
    limits = {each["Name"]: each["Hard"] for each in told()["Ulimits"]}
    assert limits["core"] == 0
    for name, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
        own = resource.getrlimit(number)[1]
        assert 0 < limits[name] <= (own if own != resource.RLIM_INFINITY else 2**22)


@pytest.mark.parametrize("info", [ROOT, ORDINARY, OLD])
def test_a_container_that_is_as_it_was_ordered(info: dict[str, Any]) -> None:
    podman.check_made(made(), told(), USER, info)
    podman.check_made(made(HostConfig={"NanoCpus": 1_499_990_000}), told(), USER, info)


def test_where_the_kernel_lets_no_ordinary_user_set_limits_none_is_asked_for() -> None:
    without = {"Memory": 0, "MemorySwap": 0, "PidsLimit": 0, "NanoCpus": 0}
    podman.check_made(made(HostConfig=without), told(), USER, OLD)
    with pytest.raises(SandboxError, match="Memory: found 0, expected 2147483648"):
        podman.check_made(made(HostConfig=without), told(), USER, ORDINARY)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"HostConfig": {"Memory": 0}}, "Memory: found 0, expected 2147483648"),
        ({"HostConfig": {"MemorySwap": -1}}, "MemorySwap: found -1"),
        ({"HostConfig": {"NanoCpus": None}}, "NanoCpus: found None"),
        ({"HostConfig": {"NanoCpus": 1_600_000_000}}, "NanoCpus: found 1600000000"),
        ({"HostConfig": {"PidsLimit": 2048}}, "PidsLimit: found 2048, expected 528"),
        ({"HostConfig": {"ReadonlyRootfs": False}}, "ReadonlyRootfs: found False, expected True"),
        ({"HostConfig": {"NetworkMode": "slirp4netns"}}, "NetworkMode: found 'slirp4netns', expected 'none'"),
        ({"HostConfig": {"SecurityOpt": ["no-new-privileges", "label=disable"]}}, "SecurityOpt: found .*'seccomp="),
        ({"HostConfig": {"SecurityOpt": None}}, "SecurityOpt: found None"),
        ({"HostConfig": {"Tmpfs": None}}, "Tmpfs of /run: found None, expected 'ro'"),
        ({"HostConfig": {"Tmpfs": {"/run": "ro", "/var/tmp": "rw", "/data": ""}}}, "Tmpfs of /var/tmp: found 'rw'"),
        ({"HostConfig": {"Tmpfs": {"/run": "ro", "/var/tmp": "ro"}}}, "Tmpfs of /data: found None"),
        ({"HostConfig": {"CapAdd": ["SYS_ADMIN"]}}, "CapAdd: found .*SYS_ADMIN"),
        ({"HostConfig": {"Privileged": True}}, "Privileged: found True"),
        ({"Config": {"User": "root"}}, "User: found 'root', expected '65534:65534'"),
        ({"Config": {"Env": ["https_proxy=http://me:secret@proxy"]}}, 'Env https_proxy: found "this user\'s proxy"'),
        ({"Mounts": [{"Type": "volume", "Destination": "/data"}]}, "Mounts: found .*/data"),
    ],
)
def test_a_container_that_is_not_as_it_was_ordered_is_refused(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, Any], found: str
) -> None:
    monkeypatch.setenv("https_proxy", "http://me:secret@proxy")
    with pytest.raises(SandboxError, match=f"so no command was run: {found}") as refused:
        podman.check_made(made(**said), told(), USER, ROOT)
    assert "secret" not in str(refused.value)


def test_a_proxy_of_the_images_own_is_none_of_this_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("https_proxy", raising=False)
    podman.check_made(made(Config={"Env": ["https_proxy=http://baked-in"]}), told(), USER, ROOT)


@pytest.mark.parametrize(("source", "target"), [("a:b", "/given"), (".", "/a:b"), ("none", "/given")])
def test_folders_that_podman_would_take_for_others_are_refused(tmp_path: Path, source: str, target: str) -> None:
    """It would split a path at the colon, and make a folder that is missing."""
    (tmp_path / "a:b").mkdir()
    with pytest.raises(SandboxError, match=r"found .*:.*|none: no such file or directory"):
        told(mounts=((Mount(tmp_path / source, target), False),))
    assert not (tmp_path / "none").exists()
