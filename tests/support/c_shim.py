"""Build libraries between a program and the C library (LD_PRELOAD)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def build_shim(folder: Path, source: str) -> Path:
    """Compile a library in the folder, and return its path. Skip the test without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    (folder / "shim.c").write_text(source)
    build = [compiler, "-shared", "-fPIC", "-o", "shim.so", "shim.c", "-ldl"]
    subprocess.run(build, cwd=folder, check=True, timeout=60)
    return folder / "shim.so"
