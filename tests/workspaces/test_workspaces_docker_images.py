from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from docker_support import docker_client, docker_spec, in_session
from support.docker_here import IMAGE, needs_docker

from pytest_agentbench.errors import ConfigError, SandboxError
from pytest_agentbench.records import SandboxNeeds
from pytest_agentbench.workspaces import Sandboxes, build_digest, compose_digest, compose_problem

pytestmark = [needs_docker, pytest.mark.slow]
needs_compose = pytest.mark.skipif(compose_problem() is not None, reason=compose_problem() or "")

COMPOSE = f"""
services:
  web:
    build: ./web
    depends_on: {{store: {{condition: service_healthy}}}}
  store:
    image: {IMAGE}
    command: ["sh", "-c", "echo kept > /data/x; touch /tmp/ready; exec sleep 1000"]
    environment: {{GREETING: "a$$b", MISSING: ""}}
    volumes: ["data:/data"]
    tmpfs: /tmp
    healthcheck: {{test: ["CMD", "test", "-f", "/tmp/ready"], interval: 200ms}}
volumes:
  data:
"""


def build_folder(folder: Path, *lines: str) -> Path:
    """A Dockerfile with these lines after its FROM, in a folder of its own."""
    folder.mkdir()
    (folder / "Dockerfile").write_text("\n".join([f"FROM {IMAGE}", *lines]))
    return folder / "Dockerfile"


def image_of(base: Path, dockerfile: Path, **settings: str) -> tuple[str, str]:
    """The name of the built image, and what a container of it says."""

    async def act(sandboxes: Sandboxes) -> tuple[str, str]:
        spec = docker_spec(sandboxes, SandboxNeeds(dockerfile=dockerfile), image=None, **settings)
        await sandboxes.prepare(spec)
        sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "case"))
        said = (await sandbox.exec(["sh", "-c", "cat /made; echo $SETTING"], seconds=20)).output
        await sandbox.stop()
        used = await sandboxes.describe(spec)
        assert (used.kind, (used.image_id or "")[:7]) == ("docker", "sha256:")
        return used.image or "", said

    return in_session(base, act)


def forget(*names: str) -> None:
    with docker_client() as client:
        for name in set(names):
            client.images.remove(name, force=True)


def test_an_image_is_built_once_for_each_content(tmp_path: Path) -> None:
    dockerfile = build_folder(tmp_path / "case", "ENV SETTING=on", "COPY made /made")
    (tmp_path / "case/made").write_text("first\n")
    first = image_of(tmp_path, dockerfile)
    shutil.copytree(tmp_path / "case", tmp_path / "copy")
    again = image_of(tmp_path, tmp_path / "copy/Dockerfile")
    (tmp_path / "case/made").write_text("second\n")
    second = image_of(tmp_path, dockerfile)
    forget(first[0], second[0])
    assert first == again
    assert (first[1], second[1]) == ("first\non\n", "second\non\n")
    assert first[0] != second[0]


def test_a_build_that_fails_shows_its_last_lines(tmp_path: Path) -> None:
    dockerfile = build_folder(tmp_path / "case", "RUN echo before; echo the reason >&2; exit 3")
    with pytest.raises(SandboxError, match=r"(?s)case/Dockerfile: the image cannot be built: .*the reason"):
        image_of(tmp_path, dockerfile)


def test_a_build_has_no_network(tmp_path: Path) -> None:
    dockerfile = build_folder(tmp_path / "case", "RUN tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' \\n' > /made")
    name, interfaces = image_of(tmp_path, dockerfile)
    forget(name)
    assert interfaces.strip() == "lo"


def test_the_digest_of_a_build(tmp_path: Path) -> None:
    dockerfile = build_folder(tmp_path / "case", "COPY . /x")
    before = build_digest(dockerfile, network=False)
    assert before != build_digest(dockerfile, network=True)
    (tmp_path / "case/other").symlink_to("/etc/passwd")
    linked = build_digest(dockerfile, network=False)
    (tmp_path / "case/other").unlink()
    assert before == build_digest(dockerfile, network=False) != linked


def project(folder: Path, text: str = COMPOSE) -> Path:
    """A compose file beside the folder `web`."""
    folder.mkdir()
    build_folder(folder / "web", "WORKDIR /srv", "RUN echo hello > index.html", 'CMD ["python3", "-m", "http.server"]')
    (folder / "compose.yaml").write_text(text)
    return folder / "compose.yaml"


def made_in(session: Path) -> dict[str, list[Any]]:
    """What the daemon has of a session."""
    filters = {"label": [f"pytest-agentbench.session={session}"]}
    with docker_client() as client:
        return {
            "containers": client.containers.list(all=True, filters=filters),
            "networks": client.networks.list(filters=filters),
            "volumes": client.volumes.list(filters=filters),
        }


@needs_compose
def test_services_run_beside_and_end_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISSING", "of this machine")
    compose = project(tmp_path / "case")
    get = "from urllib.request import urlopen; print(urlopen('http://web:8000/index.html', timeout=10).read())"

    async def act(sandboxes: Sandboxes) -> None:
        spec = docker_spec(sandboxes, SandboxNeeds(compose=compose))
        sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "case"))
        fetched = await sandbox.exec(["python3", "-c", get], seconds=20)
        assert fetched.output == "b'hello\\n'\n"
        session = sandbox.workspace.path.parent
        made = made_in(session)
        by_service = {each.labels.get("pytest-agentbench.service"): each for each in made["containers"]}
        assert set(by_service) == {None, "web", "store"}
        assert {"GREETING=a$b", "MISSING="} <= set(by_service["store"].attrs["Config"]["Env"])
        assert [each.attrs["Internal"] for each in made["networks"]] == [True]
        assert len(made["volumes"]) == 1
        await sandbox.stop()
        assert made_in(session) == {"containers": [], "networks": [], "volumes": []}

    in_session(tmp_path, act)


@needs_compose
def test_a_service_that_fails_is_told_and_removed(tmp_path: Path) -> None:
    text = f"services:\n  broken: {{image: '{IMAGE}', command: [sh, -c, 'echo the reason; exit 7']}}\n"
    compose = project(tmp_path / "case", text)

    async def act(sandboxes: Sandboxes) -> None:
        spec = docker_spec(sandboxes, SandboxNeeds(compose=compose))
        workspace = sandboxes.workspace(spec, "case")
        with pytest.raises(SandboxError, match=r"(?s)service 'broken' ended with exit code 7:.*the reason"):
            await sandboxes.start(spec, workspace)
        assert made_in(workspace.path.parent) == {"containers": [], "networks": [], "volumes": []}

    in_session(tmp_path, act)


def test_a_compose_file_that_asks_for_too_much_starts_nothing(tmp_path: Path) -> None:
    compose = project(tmp_path / "case", f"services: {{a: {{image: '{IMAGE}', privileged: true}}}}\n")
    with pytest.raises(ConfigError, match=r"compose\.yaml:1:.*services\.a\.privileged"):
        compose_digest(compose)
