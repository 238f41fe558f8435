"""Read skills: folders with a SKILL.md, whose front matter names and describes the skill."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from pytest_agentbench.bounded.files import FileRefusedError, read_file
from pytest_agentbench.config.base import Scope, resolve_folder, validate
from pytest_agentbench.config.documents import Document, parse_yaml, read_bytes
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.base import Record
from pytest_agentbench.records.skills import SKILL_FILE, Skill, SkillFile

MOST_FILES = 500
"""Maximum files of a skill."""
MOST_BYTES = 20 * 2**20
"""Maximum bytes of all files of a skill."""
MOST_TEXT = 256 * 1024
"""Maximum bytes of a SKILL.md."""
MOST_SKILLS = 50
"""Maximum skills of a run."""

_LEFT_OUT = frozenset({"evals", ".git", "__pycache__"})
"""Folders that agents do not get: `evals` has the cases by which the skill is tested."""
_NAME = re.compile(r"(?!.*--)(?!-)[^\W_A-Z]+(?:-[^\W_A-Z]+)*")


def _check_name(name: str) -> str:
    if len(name) > 64 or name != name.lower() or _NAME.fullmatch(name) is None:
        raise ValueError(
            f"found {name[:80]!r}, expected up to 64 lower-case letters, digits and single '-' between them"
        )
    return name


class _FrontMatter(Record):
    """Name and description of a skill. Programs have further keys of their own."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: Annotated[str, AfterValidator(_check_name)]
    description: Annotated[str, Field(min_length=1, max_length=1024)]


class _OptionalKeys(Record):
    """Optional keys of the front matter, as the format has them. No program refuses a skill for them."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    compatibility: Annotated[str, Field(max_length=500)] | None = None
    metadata: dict[str, str] | None = None
    allowed_tools: Annotated[str | None, Field(alias="allowed-tools")] = None


def resolve_skills(paths: Sequence[str], scope: Scope) -> tuple[Skill, ...]:
    """Return the skills that the paths of a file name: each a skill's folder, or a folder of such folders.

    Raises ConfigError for an invalid skill, for a path outside of the scope, and for two skills with one name.
    """
    return require_different_names([read_skill(at) for path in paths for at in _find_folders(path, scope)], scope)


def require_different_names(skills: Sequence[Skill], scope: Scope) -> tuple[Skill, ...]:
    """Return the skills of a file, each folder once. Raises ConfigError for too many, and for two with one name."""
    if len(skills) > MOST_SKILLS:
        raise ConfigError(f"{scope.folder}: found {len(skills)} skills, expected at most {MOST_SKILLS}")
    folders: dict[str, Path] = {}
    for skill in skills:
        first = folders.setdefault(skill.name, skill.folder)
        if first != skill.folder:
            raise ConfigError(
                f"{skill.folder / SKILL_FILE}:1:1: name: found {skill.name!r}, which {first / SKILL_FILE} has too; "
                "an agent needs different names"
            )
    return tuple({skill.name: skill for skill in skills}.values())


def _find_folders(path: str, scope: Scope) -> list[Path]:
    """Return the folder of a skill, or the folders of skills in a folder. Raises ConfigError."""
    try:
        return _resolve_folders(path, scope)
    except ValueError as error:
        raise ConfigError(f"{scope.folder}: skills: {error}") from error


def _resolve_folders(path: str, scope: Scope) -> list[Path]:
    folder = resolve_folder(path, scope)
    if (folder / SKILL_FILE).is_file():
        return [folder]
    # Each is resolved, because it may be a link that leaves the scope
    folders = [resolve_folder(str(file.parent), scope) for file in sorted(folder.glob(f"*/{SKILL_FILE}"))]
    if not folders:
        raise ConfigError(f"{folder}: found no {SKILL_FILE} there or one folder below, expected the folder of a skill")
    return folders


def read_skill(folder: Path) -> Skill:
    """Return the skill of a folder. Raises ConfigError."""
    files = tuple(sorted(_hash_files(folder), key=lambda file: file.path))  # first, because it refuses links
    fields = validate(_read_front(folder / SKILL_FILE), _FrontMatter, Scope(str(folder)))
    return Skill(name=fields.name, description=fields.description.strip(), folder=folder, files=files)


def find_skill_doubts(skill: Skill) -> Iterator[str]:
    """Yield doubts about a valid skill, as `file:line:column: key: text`, one a line."""
    document = _read_front(skill.folder / SKILL_FILE)
    folder_name = skill.folder.resolve().name
    if skill.name != folder_name:
        message = f"found {skill.name!r}, expected the folder's name {folder_name!r}: some programs find no other"
        yield str(document.error([document.problem(("name",), message)]))
    try:
        validate(document, _OptionalKeys, Scope(str(skill.folder)))
    except ConfigError as error:
        yield str(error)


def _read_front(path: Path) -> Document:
    """Return the front matter, a mapping. Raises ConfigError."""
    front, _ = split_front_matter(read_bytes(path, MOST_TEXT), path)
    document = parse_yaml(front, path)
    if not isinstance(document.data, dict):
        raise ConfigError(f"{path}:1:1: found no keys between the lines '---', expected name and description")
    return document


def read_instructions(skill: Skill) -> str:
    """Return the text of a skill below its front matter. Raises ConfigError if the file has changed."""
    file = next(file for file in skill.files if file.path == SKILL_FILE)
    _, body = split_front_matter(read_skill_file(skill, file), skill.folder / SKILL_FILE)
    return body.decode("utf-8", "replace").strip()


def read_skill_file(skill: Skill, file: SkillFile) -> bytes:
    """Return the content of a skill's file. Raises ConfigError if it is no longer the file that was loaded."""
    path = skill.folder / file.path
    content = _read(path, file.size)
    # The run's fingerprint covers the file as loaded, so the agent has to get exactly that
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise ConfigError(f"{path}: changed after the skill was loaded; start the session again")
    return content


def split_front_matter(text: bytes, path: Path) -> tuple[bytes, bytes]:
    """Return the front matter, with the line before it so that its lines keep their numbers, and the rest."""
    match = re.match(rb"(?:\xef\xbb\xbf)?(---[ \t]*\r?\n.*?)^---[ \t]*(?:\r?\n|\Z)", text, re.DOTALL | re.MULTILINE)
    if match is None:
        raise ConfigError(
            f"{path}:1:1: found no front matter, expected a line '---', the keys name and description, and a line '---'"
        )
    return match[1], text[match.end() :]


def _hash_files(folder: Path) -> Iterator[SkillFile]:
    size = 0
    for count, path in enumerate(_walk(folder), start=1):
        if count > MOST_FILES:
            raise ConfigError(f"{folder}: found more than {MOST_FILES} files, expected a smaller skill")
        content = _read(path, MOST_BYTES - size)
        size += len(content)
        yield SkillFile(
            path=path.relative_to(folder).as_posix(),
            size=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
            is_executable=os.access(path, os.X_OK),
        )


def _walk(folder: Path) -> Iterable[Path]:
    """Yield the files of a skill. Raises ConfigError for a link, which may lead anywhere."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        for name in (*folders, *names):
            if os.path.islink(place := os.path.join(parent, name)):
                raise ConfigError(f"{place}: found a link in a skill, expected files; copy its target there")
        yield from (Path(parent, name) for name in names)


def _read(path: Path, limit: int) -> bytes:
    try:
        return read_file(path, limit)
    except FileRefusedError as error:
        advice = f"; a skill has at most {MOST_BYTES // 2**20} MB"
        raise ConfigError(f"{path}: cannot be part of a skill: {error.strerror}{advice}") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
