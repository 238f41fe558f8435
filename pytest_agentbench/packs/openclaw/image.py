"""`agentbench openclaw image`: build the pinned image that OpenClaw runs in, unless it exists."""

from __future__ import annotations

import argparse
import hashlib
import re
import time
from contextlib import closing
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from pytest_agentbench.errors import ConfigError, SandboxError
from pytest_agentbench.extensions import CONTAINERS
from pytest_agentbench.terminal_text import last_lines
from pytest_agentbench.workspaces.packages import (
    NODE,
    NOT_NEEDED,
    NPM_OPTIONS,
    Staging,
    get_node,
    run_npm,
    stage_files,
)
from pytest_agentbench.workspaces.sandboxes.images import engine_option

if TYPE_CHECKING:
    from pytest_agentbench.workspaces.sandboxes.images import LocalImage, LocalImages


_NPM_OPTIONS = ("--omit=optional", "--omit=peer", *NPM_OPTIONS)
"""Options of npm's installation. OpenClaw's first start, during the build, replaces the install scripts."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DOCKERFILE = f"""\
FROM {{base}}
ADD root.tar /
ENV PATH=/opt/openclaw/bin:/opt/openclaw/node_modules/.bin:/opt/node/bin:${{{{PATH:-{_PATH}}}}}
ENTRYPOINT []
RUN openclaw --version && node /opt/openclaw/compile.mjs /opt/openclaw && rm -rf /tmp/openclaw*
"""
"""OpenClaw's first call completes its installation like npm's scripts: a run's container is read-only. Then a turn
stores compiled code in the image. Without that, each run's first turn takes half as long again.
"""

_COMPILE = files("pytest_agentbench.packs.openclaw") / "openclaw_compile.mjs"

RECIPE = hashlib.sha256(repr((NODE, _NPM_OPTIONS, NOT_NEEDED, _DOCKERFILE, _COMPILE.read_text())).encode()).hexdigest()[
    :12
]
"""Hash of the build recipe, which identifies images of other recipes."""


VERSION = "2026.9.6"
NAME = "localhost/agentbench-openclaw"
BASE = "debian:12.12-slim"

_TAG = re.compile(r"[a-z0-9][a-z0-9._/:-]*:\w[\w.-]{0,99}", re.ASCII)
"""Tags of images. Checked before the download, because some engines refuse a bad name only when they build."""

_LABEL = "pytest-agentbench.openclaw"
_NODE, _BASE, _BASE_ID, _RECIPE = (f"{_LABEL}.{part}" for part in ("node", "base", "base-id", "recipe"))


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "image",
        help="build the pinned image that OpenClaw runs in",
        description="Build an image with OpenClaw and the Node that it needs, from the packages on PyPI and npm. Does "
        "nothing if the image exists and has the same parts. Needs the network only for the download, and to pull a "
        "missing base. Exit status 0: the image exists; 1: it cannot be built; 2: wrong usage.",
    )
    parser.add_argument(
        "--version", type=_parse_version, default=VERSION, help="of the npm package openclaw (default: %(default)s)"
    )
    parser.add_argument(
        "--base",
        default=BASE,
        metavar="IMAGE",
        help="the base image: a Linux with glibc and libstdc++6 (default: %(default)s)",
    )
    parser.add_argument(
        "--tag", type=_parse_tag, metavar="NAME:TAG", help=f"the image's name (default: {NAME}:VERSION)"
    )
    parser.add_argument(
        "--engine",
        default=CONTAINERS,
        metavar="ENGINE",
        help="a container engine's program, such as podman, or a kind of sandbox (default: %(default)s)",
    )
    parser.add_argument("--rebuild", action="store_true", help="build again, and replace a foreign image of that name")


def run(args: argparse.Namespace) -> int:
    """Build the image unless it exists; print a line for each step."""
    from pytest_agentbench.workspaces.sandboxes.choice import open_images

    tag = args.tag or f"{NAME}:{args.version}"
    with closing(open_images(args.engine)) as images:
        base, made = images.find(args.base), images.find(tag)
        if made is not None and not args.rebuild:
            reason = _why_outdated(made, tag, args.version, args.base, base)
            if reason is None:
                labels = made.labels
                parts = f"openclaw {labels[_LABEL]}, Node {labels.get(_NODE)}, on {labels.get(_BASE)}"
                print(f"{tag} is up to date: {parts}")
                return 0
            _tell(f"{tag} is built again: {reason}")
        _build_image(images, tag, args.version, args.base, base)
    return 0


def _why_outdated(made: LocalImage, tag: str, version: str, base_name: str, base: LocalImage | None) -> str | None:
    """Return why the image must be built again, or None. A missing base counts as unchanged.

    Raises ConfigError for an image that this command did not build.
    """
    labels = made.labels
    if _LABEL not in labels:
        raise ConfigError(
            f"--tag {tag}: found an image of that name which this command did not build; name another --tag, or "
            "replace it with --rebuild"
        )
    if labels[_LABEL] != version:
        return f"found openclaw {labels[_LABEL]}, expected {version}"
    if labels.get(_BASE) != base_name:
        return f"found the base {labels.get(_BASE)}, expected {base_name}"
    if base is not None and labels.get(_BASE_ID) != base.image_id:
        return f"the base {base_name} has changed"
    if labels.get(_RECIPE) != RECIPE:
        return "it was built by another recipe"
    return None


def _build_image(images: LocalImages, tag: str, version: str, base_name: str, base: LocalImage | None) -> None:
    """Build the image. It gets its name after OpenClaw has run in it; until then an older image keeps the name."""
    begun = time.monotonic()
    if base is None:
        _tell(f"pulling {base_name}")
        base = images.pull(base_name)
    unchecked = f"{tag}.unchecked"
    with stage_files() as staging:
        labels = {
            _LABEL: version,
            _NODE: _add_openclaw(staging, version),
            _BASE: base_name,
            _BASE_ID: base.image_id,
            _RECIPE: RECIPE,
        }
        _tell(f"building on {base_name}")
        try:
            staging.build(images, unchecked, _DOCKERFILE.format(base=base_name), labels)
        except SandboxError as error:
            if "libstdc++" not in str(error):
                raise
            advice = f"the base {base_name} lacks libstdc++6: install it there, or name another --base"
            raise SandboxError(f"{error}\n{advice}") from error
    try:
        _tell(f"running it without network: {_read_version(images, unchecked)}")
        images.tag(unchecked, tag)
    finally:
        images.remove(unchecked)
    _tell(f"{tag} is built, in {time.monotonic() - begun:.0f} s; name it in a run profile: openclaw: {{image: {tag}}}")


def _add_openclaw(staging: Staging, version: str) -> str:
    """Add OpenClaw and its Node, and return the version of Node.

    Raises UnavailableError if Node cannot be downloaded, SandboxError if a step fails.
    """
    _tell(f"getting Node: {NODE}")
    node, node_version = get_node(staging.folder / "wheel")
    _tell(f"getting openclaw {version} with the npm of Node {node_version}")
    openclaw = staging.folder / "openclaw"
    openclaw.mkdir()
    run_npm(node, ["install", "--prefix", str(openclaw), *_NPM_OPTIONS, f"openclaw@{version}"])
    # Only Node: the agent gets no npm.
    staging.add(node, "opt/node/bin/node")
    staging.add(openclaw, "opt/openclaw", NOT_NEEDED)
    with as_file(_COMPILE) as script:
        staging.add(script, "opt/openclaw/compile.mjs")
    return node_version


def _read_version(images: LocalImages, name: str) -> str:
    """Return the output of `openclaw --version` in a container like a run's. Raises SandboxError if it fails."""
    code, output = images.run(name, "openclaw", ["--version"])
    if code:
        raise SandboxError(
            f"`openclaw --version` ended with exit status {code} in the image, expected 0; name another --base or "
            f"--version\n{last_lines(output)}"
        )
    return output.strip()


def _tell(line: str) -> None:
    print(line, flush=True)


def _parse_version(text: str) -> str:
    if re.fullmatch(r"\d+(\.\d+)+(-[A-Za-z0-9.]+)?", text) is None:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a version such as {VERSION}")
    return text


def _parse_tag(text: str) -> str:
    from pytest_agentbench.config.profiles import pinning_problem

    if _TAG.fullmatch(text) is None or pinning_problem(text) is not None:
        raise argparse.ArgumentTypeError(
            f"found {text!r}, expected NAME:TAG, the name in lower case, and a tag that is not latest"
        )
    return text


def describe_building(engine: str) -> str:
    """Return advice to build the image of OpenClaw on this machine, for a container engine or a kind of sandbox."""
    return f"build it with `agentbench openclaw image{engine_option(engine)}` if it is OpenClaw's"
