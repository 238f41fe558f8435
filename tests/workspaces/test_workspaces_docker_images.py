from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docker_support import docker_client, docker_spec, in_session, until
from support.docker_here import IMAGE, needs_docker

from pytest_agentbench.errors import ConfigError, SandboxError, UnavailableError
from pytest_agentbench.records.case import SandboxNeeds, SandboxSettings
from pytest_agentbench.workspaces.containers.compose import compose_digest, compose_problem
from pytest_agentbench.workspaces.containers.images import build_digest
from pytest_agentbench.workspaces.sandboxes.base import Mount
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes

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

ADDRESS = """
import errno, fcntl, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
    try:
        fcntl.ioctl(asking, 0x8915, struct.pack("256s", sys.argv[1].encode()))  # SIOCGIFADDR
        print("true")
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise
        print("false")
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
    assert not list(Path(tempfile.gettempdir()).glob(f"agentbench-build-*{name.rpartition(':')[2]}*"))


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
            "containers": client.containers.list(all=True, filters=filters, ignore_removed=True),
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
        assert [has_address(each.id) for each in made["networks"]] == [False]
        connected = [host for each in made["containers"] if (host := each.attrs["HostConfig"])["NetworkMode"] != "none"]
        assert {tuple(each["Dns"]) for each in connected} == {("127.0.0.1",)}
        assert len(made["containers"]) - len(connected) == 1  # what keeps the volume
        assert by_service["store"].attrs["HostConfig"]["NanoCpus"] == spec.limits.cpus * 10**9
        await sandbox.stop()
        forget(*by_service["web"].image.tags)
        assert made_in(session) == {"containers": [], "networks": [], "volumes": []}

    in_session(tmp_path, act)


def has_address(network: str) -> bool:
    """Whether the machine of the daemon has an IPv4 address in a network: one asks in the namespace of its bridges."""
    with docker_client() as client:
        asked = client.containers.run(
            IMAGE, ["python3", "-c", ADDRESS, f"br-{network[:12]}"], network_mode="host", remove=True
        )
    return bool(json.loads(asked))


@needs_compose
def test_a_session_that_ends_does_not_wait_for_services(tmp_path: Path) -> None:
    never = f"{{image: '{IMAGE}', command: [sleep, '1000'], healthcheck: {{test: [CMD, 'false'], retries: 1000}}}}"
    compose = project(tmp_path / "case", f"services:\n  never: {never}\nvolumes: {{data: }}\n")

    async def act(sandboxes: Sandboxes) -> Path:
        spec = docker_spec(sandboxes, SandboxNeeds(compose=compose))
        workspace = sandboxes.workspace(spec, "case")
        starting = asyncio.ensure_future(sandboxes.start(spec, workspace))
        await until(lambda: bool(made_in(workspace.path.parent)["containers"]))
        starting.cancel()
        return workspace.path.parent

    session = in_session(tmp_path, act)
    assert made_in(session) == {"containers": [], "networks": [], "volumes": []}


@needs_compose
def test_the_images_of_services_are_had_before_anything_is_paid(tmp_path: Path) -> None:
    compose = project(tmp_path / "case", "services:\n  none: {image: '127.0.0.1:1/none:1'}\n")

    async def act(sandboxes: Sandboxes) -> None:
        await sandboxes.prepare(docker_spec(sandboxes, SandboxNeeds(compose=compose)))

    with pytest.raises(UnavailableError, match="cannot be pulled"):
        in_session(tmp_path, act)


@pytest.fixture
def proxied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A docker configuration of this user that names a proxy, with its password."""
    (tmp_path / "docker").mkdir()
    proxies = {"proxies": {"default": {"httpProxy": "http://me:secret@127.0.0.1:1"}}}
    (tmp_path / "docker/config.json").write_text(json.dumps(proxies))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))


@pytest.mark.usefixtures("proxied")
def test_no_proxy_of_this_user_is_given_to_builds_and_commands(tmp_path: Path) -> None:
    dockerfile = build_folder(tmp_path / "case", "RUN env > /made", "RUN env; echo of a build")

    async def act(sandboxes: Sandboxes) -> tuple[str, str]:
        spec = docker_spec(sandboxes, SandboxNeeds(dockerfile=dockerfile), image=None)
        sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "case"))
        seen = (await sandbox.exec(["sh", "-c", "env; cat /made"], seconds=20)).output
        await sandbox.stop()
        return (await sandboxes.describe(spec)).image or "", seen

    name, seen = in_session(tmp_path, act)
    forget(name)
    assert "HOME=" in seen
    assert "secret" not in seen


@pytest.mark.usefixtures("proxied")
def test_no_proxy_of_this_user_is_given_to_containers_that_dockers_program_makes(tmp_path: Path) -> None:
    async def act(sandboxes: Sandboxes) -> str:
        spec = sandboxes.container(IMAGE, SandboxSettings(), shutil.which("docker"))
        sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "case"))
        return (await sandbox.exec(["env"], seconds=20)).output

    seen = in_session(tmp_path, act)
    assert "HOME=" in seen
    assert "secret" not in seen


@needs_compose
@pytest.mark.usefixtures("proxied")
def test_no_proxy_of_this_user_is_given_to_services(tmp_path: Path) -> None:
    compose = project(tmp_path / "case", f"services:\n  one: {{image: '{IMAGE}', command: [sleep, '1000']}}\n")

    async def act(sandboxes: Sandboxes) -> list[list[str]]:
        spec = docker_spec(sandboxes, SandboxNeeds(compose=compose))
        sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "case"))
        return [each.attrs["Config"]["Env"] for each in made_in(sandbox.workspace.path.parent)["containers"]]

    given = in_session(tmp_path, act)
    assert len(given) == 2
    assert "secret" not in str(given)


def test_a_build_that_writes_much_is_not_kept_in_memory(tmp_path: Path) -> None:
    dockerfile = build_folder(tmp_path / "case", "RUN seq 1 500000; echo the reason; exit 3")
    with pytest.raises(SandboxError, match=r"(?s)cannot be built: .*the reason") as caught:
        image_of(tmp_path, dockerfile)
    assert "499999" in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 21


def test_a_build_without_network_downloads_nothing(tmp_path: Path) -> None:
    dockerfile = build_folder(tmp_path / "case", "ADD http://127.0.0.1:1/x /made")
    with pytest.raises(ConfigError, match=r"case/Dockerfile: found 'ADD http:.*', expected a plain path"):
        image_of(tmp_path, dockerfile)


@pytest.mark.parametrize("volume", ["/tmp", "/workspace/", "/data", "/run"])
@pytest.mark.parametrize("engine", ["docker", shutil.which("docker")])
def test_an_image_with_a_volume(tmp_path: Path, volume: str, engine: str) -> None:
    dockerfile = build_folder(tmp_path / "case", f"VOLUME {volume}")
    (tmp_path / "given").write_text("given")

    async def act(sandboxes: Sandboxes, image: str) -> str:
        spec = sandboxes.container(image, SandboxSettings(), engine)
        spec = replace(spec, mounts=(Mount(tmp_path / "given", "/run/agentbench"),))
        sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "case"))
        script = f"cat /run/agentbench; echo x > /tmp/left; echo x > left; ls -d {volume} > /tmp/seen"
        said = await sandbox.exec(["sh", "-c", script], seconds=20)
        assert [await sandbox.get(each, 10) for each in ("/tmp/left", "left")] == [b"x\n"] * 2
        return said.output

    with docker_client() as client:
        image = client.images.build(path=str(dockerfile.parent), rm=True)[0].id
    said = in_session(tmp_path, lambda sandboxes: act(sandboxes, image))
    forget(image)
    assert said == "given"


@needs_compose
def test_a_failed_service_is_reported_and_removed(tmp_path: Path) -> None:
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
        compose_digest(compose, network=False)
