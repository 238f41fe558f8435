"""The rules that a file and its rows must meet to become cases, for pytest's collection and `agentbench validate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_agentbench.config.profiles import EvaluationProfile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.metrics.registry import Metric, case_metric_problems, metric_problems
from pytest_agentbench.records.case import Case
from pytest_agentbench.sources.case_source import OpenedSource, SourceCase


@dataclass(eq=False)
class CaseRules:
    """The rules of one collection, with the ids and names that its files have claimed.

    Both collectors call only these methods, so that `validate` accepts the files that pytest does.
    """

    metrics: Mapping[str, Metric]
    _files: dict[ConfigRoot, dict[str, Path]] = field(default_factory=dict)

    def claim_name(self, opened: OpenedSource, root: ConfigRoot) -> None:
        """Record the prefix of the file's case ids. Raises ConfigError if another file of the root has it."""
        if opened.name is None:
            return
        # No case id ends in a dot, so names and ids share one dict.
        first = self._files.setdefault(root, {}).setdefault(f"{opened.name}.", opened.file)
        if first != opened.file:
            raise ConfigError(
                f"{opened.file}:1:1: name: found {opened.name!r}, which {first} has too; name one of them in a "
                "dataset.yaml; without one, files are named by their path below the config root, else the project "
                "(pytest.ini)"
            )

    def claim_id(self, opened: OpenedSource, row: SourceCase, root: ConfigRoot) -> None:
        """Record the id of a case. Raises ConfigError if another file of the root has the id; guests have own ids."""
        # Names keep the ids of most files apart, but row `b.c` of `a.jsonl` is row `c` of `a.b.jsonl`.
        file = opened.path if opened.own_ids else opened.file
        first = self._files.setdefault(root, {}).setdefault(row.case_id, file)
        if first != file:
            message = f"Duplicate case_id {row.case_id!r}; {first} has it too"
            if opened.own_ids:
                raise opened.explain(row, [(("case_id",), message)])
            raise ConfigError(f"{row.path}:{row.line}:1: {message}")

    def check_file_metrics(self, opened: OpenedSource, profile: EvaluationProfile) -> None:
        """Raise ConfigError if the metrics of the file cannot be computed under the profile."""
        if problems := metric_problems(opened.metrics, profile.compat, self.metrics):
            raise ConfigError(f"{opened.path}:1:1: {'; '.join(reason for _, reason in problems)}")

    def check_row_metrics(self, opened: OpenedSource, row: SourceCase, case: Case, profile: EvaluationProfile) -> None:
        """Raise ConfigError if metrics of the row itself cannot be computed for its case under the profile."""
        if row.own_metrics and (problems := case_metric_problems(case, profile.compat, self.metrics)):
            raise opened.explain(row, problems)
