from __future__ import annotations

from pathlib import Path

import pytest

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.workspaces.containers.compose_file import load_compose

GOOD = """
version: "3.8"
services:
  db:
    image: postgres:16.4
    environment: [POSTGRES_PASSWORD=only-here]
    volumes: ["data:/var/lib/postgresql/data"]
    healthcheck: {test: ["CMD-SHELL", "pg_isready"], interval: 1s, retries: 30}
  web:
    build: {context: web, dockerfile: Dockerfile.test}
    command: serve --price '$$5'
    depends_on: {db: {condition: service_healthy}}
volumes:
  data:
"""


def write(folder: Path, text: str) -> Path:
    """A compose file in a folder that has one to build from."""
    (folder / "web").mkdir(exist_ok=True)
    (folder / "web/Dockerfile.test").write_text("FROM debian:12\n")
    (folder / "web/Floating").write_text("FROM debian\n")
    (folder / "web/Linked").symlink_to(folder.parent / "Dockerfile")
    (folder.parent / "Dockerfile").write_text("FROM debian:12\nCOPY . /\n")
    (folder / "compose.yaml").write_text(text)
    return folder / "compose.yaml"


def test_a_file_with_services_volumes_and_builds(tmp_path: Path) -> None:
    (tmp_path / "case").mkdir()
    file = load_compose(write(tmp_path / "case", GOOD))
    assert list(file.services) == ["db", "web"]
    assert file.services["db"].volumes == ("data:/var/lib/postgresql/data",)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("privileged: true", "services.s.privileged: unknown field; there is build, command, "),
        ("network_mode: host", "services.s.network_mode"),
        ("pid: host", "services.s.pid"),
        ("ipc: host", "services.s.ipc"),
        ("userns_mode: host", "services.s.userns_mode"),
        ("devices: ['/dev/sda:/dev/sda']", "services.s.devices"),
        ("cap_add: [SYS_ADMIN]", "services.s.cap_add"),
        ("security_opt: ['seccomp:unconfined']", "services.s.security_opt"),
        ("ports: ['80:80']", "services.s.ports"),
        ("env_file: .env", "services.s.env_file"),
        ("extends: {file: other.yaml, service: x}", "services.s.extends"),
        ("volumes: ['/var/run/docker.sock:/x']", "a named volume"),
        ("volumes: ['./here:/x']", "a named volume"),
        ("volumes: ['~/x:/x']", "a named volume"),
        ("volumes: [{type: bind, source: /, target: /x}]", "services.s.volumes"),
        ("volumes: ['unknown:/x']", "declare it"),
        ("environment: [OPENAI_API_KEY]", "NAME=value"),
        ("environment: {OPENAI_API_KEY: }", "services.s.environment"),
        ("environment: {KEY: '${OPENAI_API_KEY}'}", "write $$"),
        ("command: 'echo $HOME'", "write $$"),
        ("depends_on: [nobody]", "a service of this file"),
        ("image: 'x:latest'", "a pinned image"),
        ("image: 'x:${TAG}'", "write $$"),
        ("image: 'x:$$TAG'", "a pinned image"),
        ("build: ..", "next to the compose file"),
        ("build: web", "web/Dockerfile"),
        ("build: {context: web, dockerfile: ..}", "an existing file"),
        ("build: {context: web, dockerfile: Linked}", "which leaves"),
        ("build: {context: web, dockerfile: Floating}", "found 'debian', expected a pinned image"),
        ("build: {context: web, dockerfile: Dockerfile.test, network: host}", "services.s.build"),
        ("build: {context: web, dockerfile: Dockerfile.test, args: [KEY]}", "services.s.build"),
        ("networks: {default: {driver: host}}", "services.s.networks"),
        ("cgroup_parent: /", "services.s.cgroup_parent"),
        ("sysctls: {kernel.shmmax: 1}", "services.s.sysctls"),
        ("extra_hosts: ['me:host-gateway']", "services.s.extra_hosts"),
        ("configs: [x]", "services.s.configs"),
        ("x-any: 1", "services.s.x-any"),
        ("hostname: '${HOME}'", "write $$"),
        ("tmpfs: '${HOME}'", "write $$"),
    ],
)
def test_fields_that_reach_this_machine_are_refused(tmp_path: Path, line: str, said: str) -> None:
    given = "" if line.startswith(("image", "build")) else "    image: a:1\n"
    (tmp_path / "case").mkdir()
    path = write(tmp_path / "case", f"services:\n  s:\n{given}    {line}\n")
    with pytest.raises(ConfigError) as caught:
        load_compose(path)
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{path}:")


@pytest.mark.parametrize(
    "text",
    [
        "services: {}",
        "services: {s: {}}",
        "services: {s: {image: 'a:1', build: web}}",
        "services: {s: {image: 'a:1'}}\nnetworks: {n: {external: true}}",
        "services: {s: {image: 'a:1'}}\nvolumes: {v: {driver_opts: {device: /etc, o: bind, type: none}}}",
        "services: {s: {image: 'a:1'}}\nsecrets: {x: {file: /etc/shadow}}",
        "include: [other.yaml]\nservices: {s: {image: 'a:1'}}",
        "services: {../up: {image: 'a:1'}}",
    ],
)
def test_an_invalid_file_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "case").mkdir()
    path = write(tmp_path / "case", text)
    with pytest.raises(ConfigError):
        load_compose(path)
