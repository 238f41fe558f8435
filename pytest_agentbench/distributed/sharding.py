"""Keep one part of a session that is split over machines: `--agentbench-shard I/N`."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable
from typing import Any

import pytest

from pytest_agentbench.bounded.files import open_file
from pytest_agentbench.engine.driver import JOB

_OUTPUT = "agentbench_selection"


class Sharding:
    """One shard of a session: selects the items of part `part` of `parts` (from 1), and counts the items of all parts.

    Cases are dealt in turn in the order of their first items; a case's models and repetitions stay together. Tests that
    are no cases belong to part 1. xdist's controller gets the selected items from its workers.
    """

    def __init__(self, part: int, parts: int) -> None:
        self.part, self.parts = part, parts
        self.places: dict[str, int] = {}
        self.kept: int | None = None
        self.selection: tuple[int, str, str] | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether all cases went to other parts."""
        return self.kept == 0 and self.selection is not None and self.selection[0] > 0

    def facts(self, nodeids: Iterable[str]) -> dict[str, Any]:
        """Return the entry of this part for `session` in report.json."""
        if self.selection is None:
            return {"shard": f"{self.part}/{self.parts}", "selection": None}
        runs, digest, inputs = self.selection
        places = [self.places[nodeid] for nodeid in nodeids]
        selection = {"runs": runs, "sha256": digest, "inputs": inputs, "places": places}
        return {"shard": f"{self.part}/{self.parts}", "selection": selection}

    @pytest.hookimpl(trylast=True)  # -k and -m have chosen by then, --ff and --nf have not moved anything yet
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect the items of the other parts."""
        dealt: dict[str, int] = {}
        digest, runs = hashlib.sha256(), 0
        kept: list[pytest.Item] = []
        gone: list[pytest.Item] = []
        for item in items:
            job = item.stash.get(JOB, None)
            # In turn, not by hash: shards differ by one case at most, and a case's repetitions share a machine
            number = dealt.setdefault(job.case_id, len(dealt)) if job is not None else 0
            mine = number % self.parts == self.part - 1
            (kept if mine else gone).append(item)
            if job is not None:
                # Of all items before the deal: shards merge only where each has dealt the same ones
                digest.update(f"{item.nodeid}\n".encode("utf-8", "surrogatepass"))
                if mine:
                    self.places[item.nodeid] = runs
                runs += 1
        self.kept, self.selection = len(kept), (runs, digest.hexdigest(), _digest_inputs(items))
        if hasattr(config, "workeroutput"):
            config.workeroutput[_OUTPUT] = (self.kept, *self.selection)
        if gone:
            config.hook.pytest_deselected(items=gone)
            items[:] = kept

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add an item's place to its report: extra attributes of reports travel from xdist's workers."""
        report = yield
        report.agentbench_place = self.places.get(item.nodeid)  # type: ignore[attr-defined]
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note an item's place in the controller, which collects nothing itself."""
        place = getattr(report, "agentbench_place", None)
        if place is not None:
            self.places[report.nodeid] = place

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Note the items that a worker without a crash had collected."""
        found = getattr(node, "workeroutput", {}).get(_OUTPUT)
        if found is not None:
            self.kept, *selection = found
            self.selection = tuple(selection)


def _digest_inputs(items: Iterable[pytest.Item]) -> str:
    """Return the hash of the files that the cases come from and of the profiles that they are run and judged under."""
    found = [(item.path, item.stash[JOB].plan) for item in items if JOB in item.stash]
    digest = hashlib.sha256()
    for path in dict.fromkeys(path for path, _ in found):
        with open_file(path, limit=None) as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    for plan in dict.fromkeys(plan for _, plan in found):
        digest.update(plan.model_store.run_settings + plan.model_store.evaluation_settings)
    return digest.hexdigest()
