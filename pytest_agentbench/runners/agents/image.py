"""Build the images of agents: one for each agent, all on one base image with common tools."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.errors import ConfigError, SandboxError
from pytest_agentbench.runners.agents.adapter import Adapter
from pytest_agentbench.workspaces.packages import (
    NODE,
    NODE_PACKAGE,
    NOT_NEEDED,
    NPM_OPTIONS,
    Staging,
    get_node,
    get_wheel,
    run_npm,
    run_step,
    stage_files,
)

if TYPE_CHECKING:
    from pytest_agentbench.workspaces.sandboxes.images import LocalImage, LocalImages

BASE = "debian:12.12-slim"
BASE_IMAGE = "localhost/agentbench-agents"
"""Base image of all agents' images."""

_UV = "uv>=0.9,<1"
_PATH = "/opt/agent/bin:/opt/node/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PACKAGES = "ca-certificates git procps python3 python3-venv ripgrep"
_APT = f"""\
RUN apt-get update && apt-get install -y --no-install-recommends {_PACKAGES} && rm -rf /var/lib/apt/lists/*
"""
_BASE_FILE = f"""\
FROM {{base}}
{{apt}}ADD root.tar /
ENV PATH={_PATH}
ENTRYPOINT []
"""
_AGENT_FILE = """\
FROM {base}
ADD root.tar /
"""
_SCRIPT = """\
#!/usr/bin/env python3
import sys
sys.path.insert(0, "/opt/agent/lib")
from {module} import {name}
sys.exit({name}())
"""
_CONSOLE = """\
import importlib.metadata as m, sys
for d in m.distributions(path=[sys.argv[1]]):
    for e in d.entry_points:
        if e.group == "console_scripts" and e.name == sys.argv[2]:
            print(e.value)
"""

_LABEL = "pytest-agentbench.agent"
_RECIPE = hashlib.sha256(
    repr((NODE, _UV, NPM_OPTIONS, NOT_NEEDED, _BASE_FILE, _APT, _AGENT_FILE, _SCRIPT)).encode()
).hexdigest()[:12]
Tell = Callable[[str], None]


def build_image(images: LocalImages, adapter: Adapter, base: str, tell: Tell, *, rebuild: bool = False) -> bool:
    """Build an agent's image unless it exists with the same parts. Return whether it was built.

    `tell` gets a line for each step. Raises UnavailableError if a requirement is missing, SandboxError if a step fails,
    ConfigError for an adapter without a lock file and for a foreign image of that name.
    """
    begun, name = time.monotonic(), adapter.image
    on = _build_base(images, base, tell)
    # With the id of the base, so that a renewed base makes the agents' images outdated
    labels = {_LABEL: adapter.program.name, f"{_LABEL}.of": _hash_parts(adapter), f"{_LABEL}.base": on.image_id}
    existing = images.find(name)
    if existing is not None and not rebuild:
        if _LABEL not in existing.labels:
            raise ConfigError(f"there is an image {name} that this command did not make; replace it with --rebuild")
        if labels.items() <= existing.labels.items():
            tell(f"{name} is up to date")
            return False
    if adapter.lock is None:
        raise ConfigError(f"{adapter.folder}: install.lock: missing; packages are installed only in pinned versions")
    with stage_files() as staging:
        tell(f"getting {adapter.program.install.npm or adapter.program.install.pypi}")
        if adapter.program.install.npm is not None:
            _add_npm(adapter, staging)
        else:
            _add_pypi(adapter, staging, _ask_python(images, base_name(base)))
        tell(f"building {name}")
        staging.build(images, name, _AGENT_FILE.format(base=base_name(base)), labels)
    tell(f"{name} is built, in {time.monotonic() - begun:.0f} s")
    return True


def base_name(base: str) -> str:
    """Return the name of the common image on this base."""
    return f"{BASE_IMAGE}:{hashlib.sha256(f'{base} {_RECIPE}'.encode()).hexdigest()[:12]}"


def _build_base(images: LocalImages, base: str, tell: Tell) -> LocalImage:
    """Return the common base image. Build it if it is missing or its own base has changed."""
    name = base_name(base)
    below = images.find(base)
    if below is None:
        tell(f"pulling {base}")
        below = images.pull(base)
    existing = images.find(name)
    if existing is not None and existing.labels.get(f"{_LABEL}.base") == below.image_id:
        return existing
    with stage_files() as staging:
        tell(f"getting {NODE} and {_UV}")
        node, _ = get_node(staging.folder / "node")
        staging.add(node, "opt/node/bin/node")
        get_wheel(_UV, staging.folder / "uv")
        staging.add(staging.folder / "uv" / "bin" / "uv", "opt/node/bin/uv")
        # Packages are installed only on the default base, which needs network. A user's base has its own.
        ours = base == BASE
        dockerfile = _BASE_FILE.format(base=base, apt=_APT if ours else "")
        tell(f"building {name} on {base}")
        staging.build(images, name, dockerfile, {f"{_LABEL}.base": below.image_id}, network=ours)
    image = images.find(name)
    if image is None:
        raise SandboxError(f"{name}: was built, and is not here")
    return image


def _hash_parts(adapter: Adapter) -> str:
    """Return a hash of an image's parts: the lock file, the install settings, and the recipe."""
    lock = b"" if adapter.lock is None else adapter.lock.read_bytes()
    install = adapter.program.install.model_dump_json().encode()
    return hashlib.sha256(b"\0".join((_RECIPE.encode(), install, lock))).hexdigest()[:16]


def _add_npm(adapter: Adapter, staging: Staging) -> None:
    assert adapter.lock is not None
    install, folder = adapter.program.install, staging.folder
    target = folder / "agent"
    target.mkdir()
    lock = adapter.lock.read_bytes()
    (target / "package-lock.json").write_bytes(lock)
    (target / "package.json").write_text(json.dumps({**json.loads(lock)["packages"][""], "private": True}))
    own = "<" in (install.node or "")
    node, _ = get_node(folder / "node", f"{NODE_PACKAGE}{install.node}" if own else NODE)
    if own:
        # In front of the base's on PATH
        staging.add(node, "opt/agent/bin/node")
    # Not `ci`, which refuses a lock file without packages for other machines that a registry does not have
    run_npm(node, ["install", "--prefix", str(target), "--include=optional", *NPM_OPTIONS])
    _require_pinned(adapter.lock, target / "node_modules" / ".package-lock.json")
    name = adapter.program.executable
    program = install.program or f".bin/{name}"
    if not (target / "node_modules" / program).exists():
        raise SandboxError(f"{install.npm}: found no program {program} in its packages; see install.program")
    staging.add(target / "node_modules", "opt/agent/node_modules", (*NOT_NEEDED, *install.leave_out))
    (folder / name).symlink_to(f"../node_modules/{program}")
    staging.add(folder / name, f"opt/agent/bin/{name}")


def _require_pinned(lock: Path, installed: Path) -> None:
    """Raise SandboxError if a package was installed that the lock file does not pin."""
    pinned = json.loads(lock.read_bytes())["packages"]
    for name, package in json.loads(installed.read_bytes())["packages"].items():
        if package.get("integrity") != pinned.get(name, {}).get("integrity"):
            raise SandboxError(f"{lock}: found no such {name} {package.get('version')}, which npm installed; renew it")


def _add_pypi(adapter: Adapter, staging: Staging, python: str) -> None:
    assert adapter.lock is not None
    install, folder = adapter.program.install, staging.folder
    target = folder / "lib"
    get_wheel(_UV, folder / "uv")
    uv = [str(folder / "uv" / "bin" / "uv"), "pip", "install", "--quiet", "--target", str(target)]
    run_step([*uv, "--python-version", python, "--only-binary", ":all:", "--require-hashes", "-r", str(adapter.lock)])
    name = adapter.program.executable
    value = run_step([sys.executable, "-c", _CONSOLE, str(target), name]).strip()
    if not value:
        raise SandboxError(f"{install.pypi}: found no program {name} in its packages")
    module, _, function = value.partition(":")
    script = folder / name
    script.write_text(_SCRIPT.format(module=module, name=function), encoding="utf-8")
    script.chmod(0o755)
    staging.add(target, "opt/agent/lib", ("*/__pycache__", *install.leave_out))
    staging.add(script, f"opt/agent/bin/{name}")


def _ask_python(images: LocalImages, image: str) -> str:
    """Return the version of the image's Python, such as 3.11. Raises SandboxError if it has no Python."""
    code, output = images.run(image, "python3", ["-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
    if code:
        raise SandboxError(f"{image}: has no python3: {output.strip()[-200:]}; name another --base")
    return output.strip()


def describe_image(labels: Mapping[str, str], adapter: Adapter) -> str:
    """Return `yes` if an image matches the adapter, else `outdated`."""
    if labels.get(f"{_LABEL}.of") == _hash_parts(adapter):
        return "yes"
    return "outdated"
