"""Check which tiers of OpenClaw's tests can run here: stubs, stubs in docker, and the real program in its image."""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import closing
from pathlib import Path

import docker
import pytest
from support import stub_openclaw
from support.docker_here import IMAGE, docker_lacks

OPENCLAW_IMAGE = "localhost/agentbench-openclaw:2026.9.6"
"""Image with the real program. `agentbench openclaw image` makes it; `cases/run_profiles/standard.yaml` has it."""


def openclaw_lacks() -> str | None:
    """Return the reason why OpenClaw cannot run on this machine, or None. Ask the daemon once."""
    return docker_lacks(OPENCLAW_IMAGE, "agentbench openclaw image")


needs_openclaw = pytest.mark.skipif(openclaw_lacks() is not None, reason=openclaw_lacks() or "")


def stub_image() -> str:
    """Return the tag of an image with the stub programs, built at first use. It needs docker: see `docker_lacks()`."""
    stub = Path(stub_openclaw.__file__).read_bytes()
    tag = f"agentbench-test-openclaw:{hashlib.sha256(stub).hexdigest()[:12]}"
    with closing(docker.from_env()) as client, tempfile.TemporaryDirectory() as folder:
        if not client.images.list(name=tag):
            stub_openclaw.install(Path(folder))
            Path(folder, "Dockerfile").write_text(f"FROM {IMAGE}\nCOPY openclaw node /usr/local/bin/\n")
            client.images.build(path=folder, tag=tag, rm=True)
    return tag
