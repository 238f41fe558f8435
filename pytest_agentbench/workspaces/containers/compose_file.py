"""Compose files and Dockerfiles of cases: services for an agent, and downloads of an image's build."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StrictBool, ValidationInfo, field_validator, model_validator

from pytest_agentbench.bounded.files import MAX_TEXT, read_file
from pytest_agentbench.config.base import Scope, complain, load_in, resolve_file, resolve_folder, scope_of
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.config.profiles import pinning_problem
from pytest_agentbench.records.base import AtLeastOne, Record, Text

_DIRECTIVE = re.compile(r"#\s*([A-Za-z][A-Za-z0-9]*)\s*=\s*(.+?)\s*")
_NO_PLAIN_PATH = re.compile(r"[:@$\\]")
_DOCKERFILE_VARIABLE = re.compile(r"\$(?:(?P<plain>\w+)|\{(?P<name>\w+)(?:(?P<sign>:?[-+])(?P<word>[^${}]*))?\})")


def list_base_images(dockerfile: Path) -> list[str]:
    """Return the images that a Dockerfile starts from or copies from; not its own stages, nor `scratch`.

    Variables are filled in as in a build without `--build-arg`. One that has no value there stays as it is.
    """
    images, stages, defaults = [], {"scratch"}, dict[str, str]()
    began = False
    for name, rest in _read_instructions(dockerfile):
        words = rest.split()
        if name == "ARG" and not began:  # FROM sees only the ARGs before the first stage
            defaults |= _read_defaults(rest, defaults)
        elif name == "FROM":
            began = True
            words = _fill_variables(rest, defaults).replace('"', "").split()
            image, *alias = [word for word in words if not word.startswith("--")] or [""]
            if image.lower() not in stages:
                images.append(image)
            stages |= {word.lower() for word in alias[1:2]}
        elif name == "COPY":
            sources = [word.removeprefix("--from=") for word in words if word.startswith("--from=")]
            images += [each for each in sources if not each.isdigit() and each.lower() not in stages]
    return images


def list_downloads(dockerfile: Path) -> list[str]:
    """Return the ADD instructions that name no plain path: the daemon fetches URLs even in a build without network."""
    return [each for each in list_additions(dockerfile) if _NO_PLAIN_PATH.search(each)]


def list_additions(dockerfile: Path) -> list[str]:
    """Return its ADD instructions, each of which may unpack archives."""
    return [f"ADD {rest}" for name, rest in _read_instructions(dockerfile) if name == "ADD"]


def _read_defaults(rest: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an ARG that have a default, with their values."""
    try:
        words = shlex.split(_fill_variables(rest, values))
    except ValueError:  # a quotation without an end, which docker refuses
        return {}
    return {name: value for name, sign, value in (word.partition("=") for word in words) if sign}


def _fill_variables(text: str, values: Mapping[str, str]) -> str:
    """Return the text with variables replaced, including `${NAME:-word}` and the like. Unset variables stay."""

    def value(match: re.Match[str]) -> str:
        name, sign, word = match["plain"] or match["name"], match["sign"] or "", match["word"] or ""
        is_set = name in values
        if sign.startswith(":"):  # an empty value counts as none
            is_set = bool(values.get(name))
        if sign.endswith("+"):
            if is_set:
                return word
            return ""
        if is_set:
            return values[name]
        if sign:
            return word
        return match[0]

    return _DOCKERFILE_VARIABLE.sub(value, text)


def _read_instructions(dockerfile: Path) -> Iterator[tuple[str, str]]:
    """Yield name (in capitals) and arguments of each instruction; ONBUILD ones count as immediate ones."""
    lines = read_file(dockerfile, MAX_TEXT).decode("utf-8-sig", "replace").split("\n")
    escape = re.escape(_find_escape(lines))
    kept = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    for line in re.sub(rf"{escape}[ \t\r]*\n", "", "\n".join(kept)).split("\n"):
        name, _, rest = re.sub(r"\s+", " ", line).strip().partition(" ")
        while name.upper() == "ONBUILD":
            name, _, rest = rest.partition(" ")
        yield name.upper(), rest


def _find_escape(lines: list[str]) -> str:
    """Return the character that continues a line: a backslash, or the one of a directive at the top."""
    for line in lines:
        directive = _DIRECTIVE.fullmatch(line.strip())
        if directive is None:
            break
        if directive[1].lower() == "escape":
            return directive[2]
    return "\\"


# Compose files of cases: the part of Compose that runs services for an agent without access to this machine.
# Field names and forms follow the Compose Specification. Other fields are refused, above all those that
# reach this machine: host folders, ports, devices, capabilities, the host's namespaces, its environment.


_VOLUME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*:/[^:]*(:ro)?")
_VARIABLE = re.compile(r"(?<!\$)(\$\$)*\$(?!\$)")


def _refuse_variables(text: str) -> str:
    if _VARIABLE.search(text):
        raise ValueError(f"found {text!r}: variables are not filled in; write $$ for a dollar sign")
    return text


def _find_build_problem(folder: str, name: str, scope: Scope) -> str | None:
    try:
        dockerfile = resolve_file(os.path.join(folder, name), scope)
    except ValueError as error:
        return str(error)
    problems = (problem for image in list_base_images(dockerfile) if (problem := pinning_problem(image)))
    return next((f"{name}: {problem.partition('; ')[0]}" for problem in problems), None)


def _require_folder_beside(text: str, info: ValidationInfo) -> str:
    if (scope := scope_of(info)) is not None:
        try:
            resolve_folder(text, scope)
        except ValueError as error:
            raise ValueError(f"found {text!r}, expected a folder next to the compose file, or below") from error
    return text


Plain = Annotated[Text, AfterValidator(_refuse_variables)]
"""Text that Compose takes as it is."""

Command = Plain | tuple[Annotated[str, AfterValidator(_refuse_variables)], ...]
Duration = Annotated[str, Field(pattern=r"^(\d+(\.\d+)?(us|ms|s|m|h))+$")]
BuildFolder = Annotated[Text, AfterValidator(_require_folder_beside)]


class ComposeBuild(Record):
    """An image built from a folder."""

    context: BuildFolder
    """The folder, relative to the compose file."""
    dockerfile: Annotated[Text, Field(pattern=r"^[^/]+$")] = "Dockerfile"
    """Its Dockerfile."""


class Healthcheck(Record):
    """The test by which a service counts as healthy."""

    test: Command
    """The command whose exit code decides."""
    interval: Duration | None = None
    """Between two looks."""
    timeout: Duration | None = None
    """Limit of one look."""
    start_period: Duration | None = None
    """How long failures do not count."""
    retries: AtLeastOne | None = None
    """Failures in a row until it is unhealthy."""


class Dependency(Record):
    """The state of a service that is waited for."""

    condition: Literal["service_started", "service_healthy", "service_completed_successfully"] = "service_started"
    """The state it must have."""


class ComposeService(Record):
    """A service that the agent's container reaches by the service's name."""

    image: Plain | None = None
    """A pinned image."""
    build: BuildFolder | ComposeBuild | None = None
    """A folder to build it from."""
    command: Command | None = None
    """In place of the image's."""
    entrypoint: Command | None = None
    """In place of the image's."""
    environment: dict[str, Annotated[str, AfterValidator(_refuse_variables)] | int | float] | tuple[Plain, ...] = ()
    """Its variables, with values."""
    working_dir: Plain | None = None
    """Where its command starts."""
    user: Plain | None = None
    """Whom it runs as."""
    hostname: Plain | None = None
    """Its own name for itself."""
    depends_on: tuple[str, ...] | dict[str, Dependency] = ()
    """Services that start before it."""
    healthcheck: Healthcheck | None = None
    """When it counts as healthy: the agent's container starts once all services are."""
    tmpfs: Plain | tuple[Plain, ...] = ()
    """Folders in memory."""
    volumes: tuple[Plain, ...] = ()
    """Named volumes, as `name:/path`; they end with the run."""
    expose: tuple[int | Text, ...] = ()
    """For readers: services of one file reach all ports of each other."""
    read_only: StrictBool = False
    """Whether its root file system is."""
    init: StrictBool = False
    """Whether a first process reaps the others."""

    @field_validator("image")
    @classmethod
    def _require_pinned(cls, image: str | None) -> str | None:
        if image is not None and (problem := pinning_problem(image)):
            raise ValueError(problem.partition("; ")[0])
        return image

    @field_validator("environment")
    @classmethod
    def _require_values(cls, given: dict[str, Any] | tuple[str, ...]) -> dict[str, Any] | tuple[str, ...]:
        if isinstance(given, tuple) and (bare := [entry for entry in given if "=" not in entry]):
            raise ValueError(f"found {bare[0]!r}, expected NAME=value: nothing of this machine's environment is passed")
        return given

    @field_validator("volumes")
    @classmethod
    def _named(cls, volumes: tuple[str, ...]) -> tuple[str, ...]:
        for volume in volumes:
            if not _VOLUME.fullmatch(volume):
                raise ValueError(f"found {volume!r}, expected name:/path, a named volume; folders are not shared")
        return volumes

    @model_validator(mode="after")
    def _one_image(self) -> Self:
        if (self.image is None) == (self.build is None):
            raise ValueError("a service has either 'image' or 'build'")
        return self

    @model_validator(mode="after")
    def _check_build(self, info: ValidationInfo) -> Self:
        scope, build = scope_of(info), self.build
        if scope is not None and build is not None:
            given = build if isinstance(build, ComposeBuild) else ComposeBuild(context=build)
            if problem := _find_build_problem(given.context, given.dockerfile, scope):
                complain([(("build",), problem)])
        return self


class ComposeFile(Record):
    """A compose file: services, and the volumes that they name."""

    version: str | None = None
    """Taken, and without meaning, as in the Compose Specification."""
    services: Annotated[
        dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")], ComposeService], Field(min_length=1)
    ]
    """The services, by name."""
    volumes: dict[str, None] = Field(default_factory=dict)
    """Named volumes, each without settings."""

    @model_validator(mode="after")
    def _declared(self) -> Self:
        problems: list[tuple[Loc, str]] = []
        for name, service in self.services.items():
            here = ("services", name)
            unknown = [other for other in service.depends_on if other not in self.services]
            problems += [
                ((*here, "depends_on"), f"found {other!r}, expected a service of this file") for other in unknown
            ]
            undeclared = [each for each in service.volumes if each.partition(":")[0] not in self.volumes]
            problems += [((*here, "volumes"), f"found {each!r}; declare it under `volumes:`") for each in undeclared]
        complain(problems)
        return self


def load_compose(path: Path) -> ComposeFile:
    """Return a case's compose file. Raises ConfigError with all of its problems."""
    folder = str(path.resolve().parent)
    return load_in(path, ComposeFile, Scope(folder=folder, root=folder))
