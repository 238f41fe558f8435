"""Mistakes that people make in files and on the command line, with the expected messages.

The modules `mistakes_in_*` have them by place: files of cases, other files of a project, options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CASE = """\
schema_version: 1
case_id: hello
title: Say hello
runner: {type: llm_probe}
input:
  messages:
  - {role: user, content: Say hello.}
deterministic_checks:
- {check_id: said, declarative: {kind: regex_match, pattern: ello}}
"""
ROW = '{"id": "a", "question": "The capital of France?", "answer": "Paris"}\n'
PROFILE = "schema_version: 1\nrun_profile_id: fast\ntitle: Fast\n"
SUITE = "schema_version: 1\nsuite_id: small\ntitle: Small\nmodels: [{model_id: demo}]\ncase_selection:\n"
ENTRY = "- {model_id: gpt4o, base_url: 'http://127.0.0.1:9/v1', api_key_env: none}\n"
MODELS = f"schema_version: 1\nmodels:\n{ENTRY}"
CALL = ("cases", "--model", "demo")


@dataclass(frozen=True)
class Mistake:
    """A project with a mistake: `files` replace or join a good case, `says` is part of the expected output."""

    name: str
    says: str
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    args: tuple[str, ...] = CALL


@dataclass(frozen=True)
class WrongFile:
    """A file of cases with a mistake. `says` is the expected message after the file's path."""

    name: str
    says: str
    content: str | bytes
    file: str = "test.yaml"
