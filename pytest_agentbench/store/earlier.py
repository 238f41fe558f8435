"""Find runs that earlier versions stored under other case ids, or told apart by settings that change no result."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pytest_agentbench.bounded.files import FileRefusedError
from pytest_agentbench.bounded.folders import slug, slug_start
from pytest_agentbench.identity.fingerprints import canonical_json, drop_transport, fingerprint, rename_case
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.store.documents import match_run
from pytest_agentbench.store.output_folder import PROFILE_FILE, RUNS

if TYPE_CHECKING:
    from pytest_agentbench.sources.case_source import Earlier
    from pytest_agentbench.store.database import Documents
    from pytest_agentbench.store.documents import Signer

Found = tuple[RunArtifact, str]
"""A run, and its path relative to the output folder."""

Counts = Callable[[RunArtifact], bool]
"""Says whether a stored run is a result."""

_PROFILE = "run_profile_"
_INPUT = ".fingerprint_input.json"


class EarlierRuns:
    """The runs of a lane that were there before the session. They stay where they are, as what they were.

    `runs` is the lane's folder, `run_settings` canonical JSON of what its profile's fingerprint covers; `find_run`
    finds a run by case id, repetition and fingerprint, if it counts.
    """

    def __init__(
        self,
        documents: Documents,
        runs: str,
        run_settings: bytes,
        signer: Signer | None,
        find_run: Callable[[str, int, str, Counts], Found | None],
    ) -> None:
        self._documents, self._settings, self._signer, self._find_run = documents, run_settings, signer, find_run
        self._suite, self._profile, self._model = runs.split("/")[1:]
        self._held: dict[Earlier, Earlier] = {}

    def find(self, case_id: str, earlier: Earlier, repetition: int, covered: bytes, counts: Counts) -> Found | None:
        """Return the stored run that is the same by today's rules; `covered` is its fingerprint input by these."""
        if not self._cases:  # nearly always where all is new
            return None
        for each in (case_id, *self._earlier_ids(case_id, earlier)):
            renamed = rename_case(covered, case_id, each)
            found = self._find_run(each, repetition, fingerprint(renamed), counts) if each != case_id else None
            found = found or self._find_alike(each, repetition, renamed, counts)
            if found is not None:
                return found
        return None

    @cached_property
    def other_profiles(self) -> tuple[str, ...]:
        """Return the folders of run profiles, of any suite, that were other ones by what changes no result."""
        found = {
            name: None
            for suite in self._documents.folders(RUNS)
            for name in self._documents.folders(f"{RUNS}/{suite}")
            if name.startswith(_PROFILE) and name != self._profile and self._is_alike(f"{RUNS}/{suite}/{name}")
        }
        return tuple(found)

    def _is_alike(self, folder: str) -> bool:
        described = _read_object(self._documents.read(f"{folder}/{PROFILE_FILE}")).get("input")
        if not isinstance(described, dict):
            return False
        overrides = described.get("model_overrides")
        layers = {name: _drop(layer) for name, layer in overrides.items()} if isinstance(overrides, dict) else overrides
        described |= {"runner_defaults": _drop(described.get("runner_defaults")), "model_overrides": layers}
        return canonical_json(described) == self._settings

    @cached_property
    def _cases(self) -> frozenset[str]:
        """Return the folders of cases that have runs here."""
        suites = self._documents.folders(RUNS)
        profiles = (self._profile, *self.other_profiles)
        places = (f"{RUNS}/{suite}/{profile}/{self._model}" for suite in suites for profile in profiles)
        return frozenset(name for place in places for name in self._documents.folders(place))

    def _earlier_ids(self, case_id: str, earlier: Earlier) -> Iterator[str]:
        if earlier and earlier not in self._held:
            starts = [(pair, slug_start(pair[1])) for pair in earlier]
            held = tuple(pair for pair, start in starts if any(name.startswith(start) for name in self._cases))
            self._held[earlier] = held
        for now, before in self._held.get(earlier, ()):
            if case_id.startswith(f"{now}."):
                yield before + case_id[len(now) :]

    def _find_alike(self, case_id: str, repetition: int, covered: bytes, counts: Counts) -> Found | None:
        leaf, name = slug(case_id), f"run_{repetition}{_INPUT}"
        for profile in (self._profile, *self.other_profiles) if leaf in self._cases else ():
            folder = f"{RUNS}/{self._suite}/{profile}/{self._model}/{leaf}"
            for path, content in self._documents.find(folder, (name, name)):
                found = self._match(path.removesuffix(_INPUT) + ".json", content, covered)
                if found is not None and found[0].repetition == repetition and counts(found[0]):
                    return found
        return None

    def _match(self, path: str, content: bytes, covered: bytes) -> Found | None:
        """Return the run at `path`, whose fingerprint input is `content`, where that differs in nothing that counts."""
        data = _read_object(content)
        runner = data.get("runner")
        if not isinstance(runner, dict):
            return None
        alike = {**data, "runner": {**runner, "settings": _drop(runner.get("settings"))}}
        if canonical_json(alike) != covered:
            return None
        try:
            document = self._documents.read(path)
        except (FileRefusedError, PermissionError):  # what is stored in its place keeps it aside, and says so
            return None
        artifact = None if document is None else match_run(document, fingerprint(data), self._signer)
        return None if artifact is None else (artifact, path)


def _drop(settings: object) -> Any:
    return drop_transport(settings) if isinstance(settings, dict) else settings


def _read_object(content: bytes | None) -> dict[str, Any]:
    """Return the object of a JSON document, an empty one for anything else."""
    try:
        found = json.loads(content or b"null")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
