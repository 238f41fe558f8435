"""The user's own configuration: apart from all rooms, for a session asks for it before it knows of any case."""

from __future__ import annotations

import os
import sys
from pathlib import Path

TRUST_FILE = "trust.json"
"""The file of the user's grants to folders of others."""


def user_folder() -> Path:
    """Return the folder of the user's own configuration, which no repository reaches."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(home):
        folder = Path(home)
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Application Support"
    elif sys.platform == "win32":
        folder = Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    else:
        folder = Path.home() / ".config"
    return folder / "pytest-agentbench"
