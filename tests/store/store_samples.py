"""Paths in an output folder, and Python code that runs in another process with its documents."""

from __future__ import annotations

import subprocess
import sys

from pytest_agentbench.store.database import LARGEST

FOLDER = "runs/suit_default/run_profile_12345678/gpt/sum"
RUN = f"{FOLDER}/run_1.json"
ASIDE = f"{FOLDER}/run_1.abcdef01.json"
NAMES = ("run_1.json", "run_1.abcdef01.json")
LARGE = b"x" * (LARGEST + 1)


def in_child(code: str, *argv: object) -> list[str]:
    prelude = "import os, sys\nfrom pytest_agentbench.store.database import LARGEST, open_documents\n"
    prelude += "documents = open_documents(sys.argv[1])\n"
    return [sys.executable, "-c", prelude + code, *map(str, argv)]


def run_child(code: str, *argv: object, **options) -> str:
    done = subprocess.run(in_child(code, *argv), capture_output=True, text=True, timeout=120, check=True, **options)
    return done.stdout
