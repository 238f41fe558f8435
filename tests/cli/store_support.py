"""An output folder with runs and verdicts, written as sessions write them."""

from __future__ import annotations

from datetime import UTC, datetime

from support.stored import Stored, find_stored, list_stored

from pytest_agentbench.config.profiles import EvaluationProfile, RunProfile
from pytest_agentbench.identity.fingerprints import fingerprint
from pytest_agentbench.records.evaluation import Evaluation, JudgeIteration, JudgeResult
from pytest_agentbench.records.run import FinalOutputEvent, RunArtifact, RunError
from pytest_agentbench.secrets.redaction import Redactor
from pytest_agentbench.store.artifacts import Store


def covered(prompt="2 + 2?", **fields):
    return {"case_id": "sum", "messages": [{"role": "user", "content": prompt}], "schema_version": 2, **fields}


class Shop:
    """A store in `outputs`, written as sessions write it."""

    def __init__(self, folder):
        self.output = folder / "outputs"
        self.draws = 0

    def model_store(self, suite=None, model="gpt", *, rubric="standard", **settings):
        store = Store(self.output, Redactor({"API_KEY": "hunter2-hunter2"}))
        run = RunProfile(schema_version=1, run_profile_id="p", title="P", **settings)
        evaluation = EvaluationProfile(schema_version=1, evaluation_profile_id=rubric, title="E")
        return store.of_model(suite, run, evaluation, model)

    def run(self, content=None, *, case_id="sum", repetition=1, model_store=None, status="success", **fields):
        """Stores a run with its verdict; the run and its path."""
        content = covered() if content is None else content
        model_store = model_store or self.model_store()
        self.draws += 1
        error = None if status == "success" else RunError(code="x", message="down")
        artifact = RunArtifact(
            run_id=f"{self.draws:032x}",
            case_id=case_id,
            runner_type="llm_probe",
            model={"model_id": "gpt"},
            repetition=repetition,
            fingerprint=fingerprint(content),
            status=status,
            started_at=datetime(2026, 1, 1, tzinfo=UTC),
            duration_seconds=0.1,
            error=error,
            **{"trace": (FinalOutputEvent(sequence=0, at=0.0, content="4"),), **fields},
        )
        path = Stored(self.output, model_store.write_run(artifact, content))
        if status == "success":
            self.judge(artifact, model_store)
        return artifact, path

    def judge(self, artifact, model_store=None, *, outcome="passed", rubric="a"):
        model_store = model_store or self.model_store()
        iteration = JudgeIteration(judge_run_id="j", judge_id="j", model="m", repetition=1, status="invalid_output")
        judged = JudgeResult(
            method="mean",
            pass_threshold=0.5,
            overall=7,
            dimensions={},
            passed=True,
            sampled=1,
            iterations=(iteration,),
        )
        evaluation = Evaluation(
            case_id=artifact.case_id,
            run_id=artifact.run_id,
            run_fingerprint=artifact.fingerprint,
            fingerprint=None if outcome == "error" else fingerprint([artifact.fingerprint, rubric]),
            judge=judged,
            outcome=outcome,
        )
        return Stored(
            self.output, model_store.write_evaluation(artifact.repetition, evaluation, [{"content": "judge this"}])
        )

    def names(self):
        """All documents and files but locks and descriptions of profiles, relative to the store."""
        return [name for name in list_stored(self.output) if not name.endswith(".fingerprint.json")]

    def find(self, pattern):
        """Finds the one document that is named so."""
        [found] = find_stored(self.output, pattern)
        return found
