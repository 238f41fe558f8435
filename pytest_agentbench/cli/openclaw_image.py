"""`agentbench openclaw image`: builds the pinned image that OpenClaw runs in, unless it is there already."""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_agentbench.workspaces import ImageBuilder, LocalImage

VERSION = "2026.9.6"
NAME = "localhost/agentbench-openclaw"
BASE = "debian:12.12-slim"

_TAG = re.compile(r"[a-z0-9][a-z0-9._/:-]*:\w[\w.-]{0,99}", re.ASCII)
"""Engines take a few more. Told before the download: some find a bad name only when they build."""

_LABEL = "pytest-agentbench.openclaw"
_NODE, _BASE, _BASE_ID, _RECIPE = (f"{_LABEL}.{part}" for part in ("node", "base", "base-id", "recipe"))


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command with its options."""
    parser = subparsers.add_parser(
        "image",
        help="build the pinned image that OpenClaw runs in",
        description="Build an image with OpenClaw and the Node that it needs, from the packages on PyPI and npm. Does "
        "nothing where the image is there and was built of the same. Only the download needs network, and the pull of "
        "a base that is not here. Exit status 0: the image is there; 1: it cannot be built; 2: wrong usage.",
    )
    parser.add_argument(
        "--version", type=_version, default=VERSION, help="of the npm package openclaw (default: %(default)s)"
    )
    parser.add_argument(
        "--base",
        default=BASE,
        metavar="IMAGE",
        help="what it is built on: a Linux with glibc and libstdc++6 (default: %(default)s)",
    )
    parser.add_argument("--tag", type=_tag, metavar="NAME:TAG", help=f"the image's name (default: {NAME}:VERSION)")
    parser.add_argument(
        "--engine", default="docker", metavar="PROGRAM", help="docker, podman, ... (default: %(default)s)"
    )
    parser.add_argument(
        "--rebuild", action="store_true", help="build anew, also over an image that this command did not make"
    )


def run(args: argparse.Namespace) -> int:
    """Says what it does, a line a step."""
    from pytest_agentbench.workspaces import image_builder

    tag = args.tag or f"{NAME}:{args.version}"
    with closing(image_builder(args.engine)) as builder:
        base, made = builder.find(args.base), builder.find(tag)
        if made is not None and not args.rebuild:
            reason = _outdated(made, tag, args.version, args.base, base)
            if reason is None:
                print(f"{tag} is up to date: {_contents(made)}")
                return 0
            _tell(f"{tag} is built anew: {reason}")
        _make(builder, tag, args.version, args.base, base)
    return 0


def _outdated(made: LocalImage, tag: str, version: str, base_name: str, base: LocalImage | None) -> str | None:
    """Why the image is to be built anew; None where it need not be. A base that is gone is taken for unchanged.

    Raises ConfigError for an image that is not ours.
    """
    from pytest_agentbench.cli.openclaw_staging import RECIPE
    from pytest_agentbench.errors import ConfigError

    found = made.labels
    if _LABEL not in found:
        raise ConfigError(
            f"--tag {tag}: there is an image of that name which this command did not make; name another --tag, or "
            "replace it with --rebuild"
        )
    if found[_LABEL] != version:
        return f"found openclaw {found[_LABEL]}, expected {version}"
    if found.get(_BASE) != base_name:
        return f"found the base {found.get(_BASE)}, expected {base_name}"
    if base is not None and found.get(_BASE_ID) != base.image_id:
        return f"the base {base_name} has changed"
    if found.get(_RECIPE) != RECIPE:
        return "it was built in another way"
    return None


def _make(builder: ImageBuilder, tag: str, version: str, base_name: str, base: LocalImage | None) -> None:
    """The image gets its name once OpenClaw has run in it; until then an older one keeps it."""
    from pytest_agentbench.cli.openclaw_staging import RECIPE, stage
    from pytest_agentbench.errors import SandboxError

    begun = time.monotonic()
    base = base or _pulled(builder, base_name)
    unchecked = f"{tag}.unchecked"
    with tempfile.TemporaryDirectory(prefix="agentbench-openclaw-") as folder:
        staged = stage(Path(folder), base_name, version, _tell)
        labels = {
            _LABEL: version,
            _NODE: staged.node_version,
            _BASE: base_name,
            _BASE_ID: base.image_id,
            _RECIPE: RECIPE,
        }
        _tell(f"building on {base_name}")
        try:
            builder.build(staged.context, unchecked, labels)
        except SandboxError as error:
            if "libstdc++" not in str(error):
                raise
            advice = f"the base {base_name} lacks libstdc++6: install it there, or name another --base"
            raise SandboxError(f"{error}\n{advice}") from error
    try:
        _tell(f"running it without network: {_said_version(builder, unchecked)}")
        builder.tag(unchecked, tag)
    finally:
        builder.remove(unchecked)
    _tell(f"{tag} is built, in {time.monotonic() - begun:.0f} s; name it in a run profile: openclaw: {{image: {tag}}}")


def _pulled(builder: ImageBuilder, name: str) -> LocalImage:
    """Raises UnavailableError where the base is not to be had."""
    from pytest_agentbench.errors import SandboxError

    _tell(f"pulling {name}")
    builder.pull(name)
    if (found := builder.find(name)) is None:
        raise SandboxError(f"--base {name}: was pulled, and is not here; name it as the engine lists it")
    return found


def _said_version(builder: ImageBuilder, name: str) -> str:
    """What `openclaw --version` prints in a container as runs have it. Raises SandboxError where it does not run."""
    from pytest_agentbench.errors import SandboxError

    code, output = builder.run(name, "openclaw", ["--version"])
    if code:
        last = "\n".join(output.strip().splitlines()[-10:])
        raise SandboxError(
            f"`openclaw --version` ends with exit status {code} in the image, expected 0; name another --base or "
            f"--version\n{last}"
        )
    return output.strip()


def _contents(made: LocalImage) -> str:
    return f"openclaw {made.labels[_LABEL]}, Node {made.labels.get(_NODE)}, on {made.labels.get(_BASE)}"


def _tell(line: str) -> None:
    print(line, flush=True)


def _version(text: str) -> str:
    if re.fullmatch(r"\d+(\.\d+)+(-[A-Za-z0-9.]+)?", text) is None:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a version such as {VERSION}")
    return text


def _tag(text: str) -> str:
    from pytest_agentbench.config import pinning_problem

    if _TAG.fullmatch(text) is None or pinning_problem(text) is not None:
        raise argparse.ArgumentTypeError(
            f"found {text!r}, expected NAME:TAG, the name in lower case, and a tag that is not latest"
        )
    return text
