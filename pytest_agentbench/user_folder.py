"""The user's own configuration: apart from all rooms, for a session asks for it before it knows of any case."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

TRUST_FILE = "trust.json"
"""The file of the user's grants to folders of others."""


def user_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the user's own configuration, which no repository reaches."""
    home = environ.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(home):
        folder = Path(home)
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Application Support"
    elif sys.platform == "win32":
        folder = Path(environ.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    else:
        folder = Path.home() / ".config"
    return folder / "pytest-agentbench"
