"""A tree of configuration: its files by id, and the limits of guests."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pytest_agentbench.config.base import (
    COMMANDS_FILE,
    UNVERIFIED,
    YAML_SUFFIXES,
    ConfigFile,
    Guest,
    Known,
    Origin,
    Scope,
    is_path,
    load_in,
    suggest,
)
from pytest_agentbench.config.documents import read_document
from pytest_agentbench.config.folders import is_inside
from pytest_agentbench.config.profiles import OWN_KINDS, EvaluationProfile, ModelsFile, RunProfile, SuiteFile
from pytest_agentbench.config.sections import FileKind, SectionedFile, ServersFile, added_kind
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.extensions import count_changes
from pytest_agentbench.records.case import McpServer
from pytest_agentbench.user_folder import user_folder

if TYPE_CHECKING:
    from pytest_agentbench.config.keys import KeyGrants

F = TypeVar("F", bound=ConfigFile)
P = TypeVar("P", bound=SectionedFile)


class ConfigRoot:
    """One tree of configuration. Loaded files are cached until they change.

    `guest` is the untrusted folder that the root belongs to, or for which it holds: None for the user's own, and for
    trusted folders. `host` is the session's root if that is another one: its files win in a guest, and are the fallback
    in a trusted folder.
    """

    def __init__(self, path: Path, host: ConfigRoot | None = None, guest: Guest | None = None) -> None:
        self.path = path
        self.real = os.path.realpath(path)
        self.host = host
        self.guest = guest
        self._loaded: dict[Path, tuple[tuple[int, int, Known, int], ConfigFile]] = {}
        self._commands: dict[Path, tuple[tuple[int, int], Mapping[str, McpServer]]] = {}

    def __repr__(self) -> str:
        return f"ConfigRoot({str(self.path)!r})"

    @property
    def is_guest(self) -> bool:
        """Return whether the root is another author's, who may add cases and tighten the session root's limits."""
        return self.guest is not None

    @property
    def own(self) -> ConfigRoot | None:
        """Return the root with the user's files: itself, or for a guest the session's root, which may be None."""
        if self.guest is None:
            return self
        return self.host

    @property
    def programs(self) -> str | None:
        """Return the folder whose programs its files may name; a guest has none."""
        if self.is_guest:
            return None
        return self.real

    def origin(self, path: Path | None) -> Origin:
        """Return the origin of a file that this root reads."""
        return Origin(self, path, is_users=path is None or not self._is_guests(path))

    @cached_property
    def _shared(self) -> str | None:
        """Return the folder that all its cases may read: `cases`, which may be the root itself."""
        top = os.path.realpath(self.guest.folder if self.guest else self.path)
        if os.path.basename(top) == "cases":
            return top
        if os.path.isdir(cases := os.path.join(top, "cases")):
            return cases
        return None

    def scope(self, folder: Path, known: Known = UNVERIFIED, *, allow_outside: bool = False) -> Scope:
        """Return the scope of case files in a folder: their paths may lead to the folder itself and to the root's
        `cases`.

        With `allow_outside` they may lead anywhere, unless the root is a guest's.
        """
        anywhere = allow_outside and not self.is_guest
        return Scope(str(folder), None if anywhere else self._shared or os.path.realpath(folder), known, self.guest)

    def run_profile(self, name: str) -> RunProfile:
        """Return the run profile of that id or path.

        :raises ConfigError: no file or several have the name; it is wrong; or a guest's exceeds the user's limits.
        """
        return self._placed(self._held("run_profiles", name, RunProfile.default()))

    def evaluation_profile(self, name: str, known: Known = UNVERIFIED) -> EvaluationProfile:
        """Return the evaluation profile, its metrics verified against `known`. For name and errors see run_profile."""
        return self._placed(self._held("evaluation_profiles", name, EvaluationProfile.default(), known))

    def suite(self, name: str) -> SuiteFile:
        """Return the suite of that id or path; raises like run_profile."""
        return self._placed(self._held("suites", name, SuiteFile.default()))

    def _placed(self, file: P) -> P:
        """Return the file with sections that mean the same wherever it is read. Raises ConfigError."""
        if file.origin is None or file.origin.path is None:
            return file
        programs = (self.own or self).real if file.origin.is_users else None
        placed = {each.name: each.place(value, file.origin.path, programs) for each, value in file.sections()}
        if placed:
            return file.model_copy(update=placed)
        return file

    def _held(self, folder: str, name: str, default: F, known: Known = UNVERIFIED) -> F:
        """Return the file that has precedence. A guest's file of the same name is checked too."""
        path = self.find(folder, name)
        own = path if is_path(name) else self._named(folder, name)
        if own is not None:
            self.refuse_loosening(own, self.load(own, type(default), known), default)
        return self.load(path, type(default), known)

    def refuse_loosening(self, path: Path, file: F, default: F) -> None:
        """Raise ConfigError if a guest's file loosens the session root's file of the same name, else the default."""
        if self.guest is None or not self._is_guests(path):
            return
        limit, place = default, "the default"
        if self.host is not None:
            kind = next(kind for kind in OWN_KINDS.values() if kind.model is type(default))
            folder, file_id = kind.folder, getattr(file, kind.id_field)
            place = f"the default ({self.host.path / folder} has no file of this name)"
            if (own := self.host._named(folder, path.stem) or self.host._named(folder, file_id)) is not None:
                limit, place = self.load(own, type(default)), str(own)
        from pytest_agentbench.config import guests

        guests.refuse_loosening(path, file, limit, place, self.guest)

    def _is_guests(self, path: Path) -> bool:
        """Return whether a file, or the target of its link, is in the guest's folder."""
        if self.guest is None:
            return False
        folder = os.path.abspath(self.guest.folder)
        return is_inside(os.path.abspath(path), folder) or is_inside(os.path.realpath(path), os.path.realpath(folder))

    def models(self) -> ModelsFile:
        """Return the models of models.yaml, or no models without that file. A guest has the session root's models."""
        own = self._own_file("models")
        declared = host_models = ModelsFile(schema_version=1)
        if own is not None:
            declared = self.load(own, ModelsFile)
        if self.host is not None:
            host_models = self.host.models()
        if self.guest is None:
            own_ids = {model.model_id for model in declared.models}
            models = (*declared.models, *(model for model in host_models.models if model.model_id not in own_ids))
            return declared.model_copy(update={"models": models}).read_by(self.origin(own))
        if own is None or not self._is_guests(own):
            return host_models
        from pytest_agentbench.config import guests

        guest_models = guests.models_of_guest(own, declared, host_models, self._where_models_stand(), self.guest)
        return guest_models.read_by(self.origin(own))

    def list_model_ids(self) -> set[str]:
        """Return the ids of all models in models.yaml and suites, of this root and the session's root."""
        ids = {model.model_id for model in self.models().models}
        for root in filter(None, (self, self.host)):
            for path in sorted((root.path / "suites").glob("*.*")):
                try:
                    ids.update(model.model_id for model in root.load(path, SuiteFile).models)
                except ConfigError:
                    continue  # reported if a session names the suite
        return ids

    def _where_models_stand(self) -> str:
        if self.host is None:
            return "the models.yaml of the session's root, which agentbench_configs names"
        return str(self.host._own_file("models") or self.host.path / "models.yaml")

    def key_grants(self) -> KeyGrants:
        """Return where variables may go by the user's own keys.yaml and that of the session's root.

        :raises ConfigError: one of them is wrong.
        """
        from pytest_agentbench.config.keys import KEYS_FILE, KeyGrants, KeysFile

        place = user_folder() / KEYS_FILE
        paths = [place] if place.is_file() else []
        if (own := self.own) is not None:
            place = own.path / KEYS_FILE
            if (path := own._own_file("keys")) is not None:
                paths.append(path)
        return KeyGrants(tuple(self.load(path, KeysFile) for path in paths), str(place))

    def mcp_servers(self, near: Path) -> Mapping[str, McpServer]:
        """Return the servers that the file of cases `near` can name, each with an absolute `cwd`.

        They are declared in a servers.yaml or a commands.json of its folder or of one above it, up to the root; the
        nearest wins, and in one folder servers.yaml. A guest's hold nowhere.

        :raises ConfigError: one of these files is wrong.
        """
        servers: Mapping[str, McpServer] = {}
        if self.host is not None:
            place = self.path if self.guest is None else self.guest.folder
            if not place.is_relative_to(self.host.path):
                place = self.host.path / "any"
            servers = self.host.mcp_servers(place)
        if self.is_guest:
            return servers
        return {**servers, **self._servers_near(near)}

    def require_servers(self, near: Path, names: Iterable[str] | None = None) -> None:
        """Raise ConfigError for servers, of these names or at all, that only files of a guest near its file of cases
        declare: they are programs, or addresses to ask.
        """
        if self.guest is None or names == {}:
            return
        # A guest's own files hold nowhere, so `declared` has only servers of the session's root.
        declared, found = self.mcp_servers(near), self._servers_near(near)
        theirs = [name for name in (found if names is None else names) if name in found and name not in declared]
        if theirs:
            place = self.host.path if self.host else "the session's root"
            raise ConfigError(
                f"{near}:1:1: found the MCP servers {', '.join(map(repr, theirs))}, which only files in "
                f"{self.guest.folder} declare, expected them in a servers.yaml of {place}; {self.guest.remedy}"
            )

    def _servers_near(self, near: Path) -> dict[str, McpServer]:
        servers: dict[str, McpServer] = {}
        for folder in self._above(near):
            servers = {**self._declared_in(folder), **servers}
        return servers

    def _own_file(self, stem: str) -> Path | None:
        return _only([path for suffix in YAML_SUFFIXES if (path := self.path / f"{stem}{suffix}").is_file()], stem)

    def own_servers(self) -> Mapping[str, McpServer]:
        """Return the servers that the session's root declares in its own folder, whose variables the user has chosen.

        :raises ConfigError: one of these files is wrong.
        """
        own = self.own
        if own is None:
            return {}
        return own._declared_in(own.path)

    def _above(self, file: Path) -> Iterator[Path]:
        """Yield the file's folder and those above it up to the root; of a file elsewhere only its own, and the root."""
        if not file.is_relative_to(self.path):
            yield from (file.parent, self.path)
            return
        for folder in file.parents:
            yield folder
            if folder == self.path:
                return

    def _declared_in(self, folder: Path) -> Mapping[str, McpServer]:
        file = _only([path for suffix in YAML_SUFFIXES if (path := folder / f"servers{suffix}").is_file()], "servers")
        declared = self.load(file, ServersFile).servers if file is not None else {}
        return {**self._commands_in(folder), **declared}

    def _commands_in(self, folder: Path) -> Mapping[str, McpServer]:
        path = folder / COMMANDS_FILE
        try:
            status = path.stat()
        except OSError:
            return {}
        version = (status.st_mtime_ns, status.st_size)
        cached = self._commands.get(path)
        if cached is None or cached[0] != version:
            from pytest_agentbench.config.commands_file import read_commands

            self._commands[path] = cached = (version, read_commands(path).require_all())
        return cached[1]

    def find(self, folder: str, name: str) -> Path:
        """Return the file that `name` names: a path, else the stem of a file of the folder, else the id that one
        declares.

        The session's root has precedence in a guest, and is the fallback in a trusted folder.

        :raises ConfigError: no file has the name, or several have it.
        """
        if is_path(name):
            return self._explicit(folder, name)
        roots = [root for root in self._in_turn if root is not None]
        for root in roots:
            if (found := root._named(folder, name)) is not None:
                return found
        names = {label for root in roots for _, labels in root._files(folder) for label in labels if label is not None}
        places = " and ".join(str(root.path / folder) for root in roots)
        raise ConfigError(f"{places}: there is no {_kind_of(folder).label} {name!r}{suggest(name, names)}")

    @property
    def _in_turn(self) -> tuple[ConfigRoot | None, ConfigRoot | None]:
        """Return the roots in order of precedence."""
        if self.is_guest:
            return (self.host, self)
        return (self, self.host)

    def _named(self, folder: str, name: str) -> Path | None:
        files = dict(self._files(folder))
        by_stem = [path for path, (stem, _) in files.items() if stem == name]
        by_id = [path for path, (_, declared) in files.items() if declared == name]
        return _only(list(dict.fromkeys(by_stem + by_id)), name)

    def _explicit(self, folder: str, name: str) -> Path:
        named_path, kind = Path(name).expanduser(), _kind_of(folder)
        # Relative to the current folder first, as a shell completes it; then relative to the root
        for path in (named_path, *(root.path / named_path for root in self._in_turn if root is not None)):
            files = [path]
            if path.is_dir() and kind.stem is not None:
                files = [path / f"{kind.stem}{suffix}" for suffix in YAML_SUFFIXES]
            for file in files:
                if file.is_file():
                    return file
        raise ConfigError(f"{named_path}: there is no such {kind.label} file, from here or from {self.path}")

    def _files(self, folder: str) -> Iterator[tuple[Path, tuple[str, str | None]]]:
        """Yield each file of a folder with the id that its place gives it, and the one that it declares."""
        kind = _kind_of(folder)
        for path in sorted((self.path / folder).glob(kind.pattern)):
            if path.suffix in YAML_SUFFIXES and path.is_file():
                yield path, (kind.id_of(path), _declared(path, kind.id_field))

    def load(self, path: Path, kind: type[F], known: Known = UNVERIFIED) -> F:
        """Return a file of this root, kept until it changes. Raises ConfigError."""
        try:
            status = path.stat()
        except OSError as error:
            raise ConfigError(f"{path}:1:1: cannot be read: {error.strerror}") from error
        # Each run asks for the servers near its case: mostly the same few files. A file is loaded again if it changed,
        # if other names are known, or if a plugin added or removed an extension (`count_changes`).
        version = (status.st_mtime_ns, status.st_size, known, count_changes())
        cached = self._loaded.get(path)
        if cached is not None and cached[0] == version and isinstance(cached[1], kind):
            return cached[1]
        guest = self.guest if self._is_guests(path) else None
        # A guest's files may name only paths in the guest's folder, links resolved
        within = None if guest is None else os.path.realpath(guest.folder)
        loaded = load_in(path, kind, Scope(str(path.parent), within, known, guest)).read_by(self.origin(path))
        self._loaded[path] = (version, loaded)
        return loaded


def has_file(root: ConfigRoot, folder: str, name: str) -> bool:
    """Return whether a name, by path, stem or id, names a file of the root's folder."""
    return (root.path / name).is_file() or any(name in labels for _, labels in root._files(folder))


def _declared(path: Path, key: str) -> str | None:
    """Return the id that a file declares; a file that cannot be read declares none: it complains when it is named."""
    try:
        data = read_document(path).data
    except ConfigError:
        return None
    declared = data.get(key) if isinstance(data, dict) else None
    if isinstance(declared, str):
        return declared
    return None


def _only(paths: list[Path], name: str) -> Path | None:
    if len(paths) > 1:
        raise ConfigError(f"{name!r} is ambiguous: it names {' and '.join(map(str, paths))}; rename one of them")
    if paths:
        return paths[0]
    return None


def _kind_of(folder: str) -> FileKind:
    """Return the kind of the files in a folder of a config root. Raises ConfigError for other folders."""
    kind = OWN_KINDS.get(folder) or added_kind(folder)
    if kind is None:
        raise ConfigError(f"{folder}: there is no kind of file for this folder of a config root")
    return kind
