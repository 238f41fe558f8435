"""Documents of another schema_version are not read, and those of a newer one stay as they are."""

from __future__ import annotations

import pytest
from support.stored import Stored, find_stored
from test_store_artifacts import RUN_INPUT, artifact, evaluation, make_model_store

from pytest_agentbench.errors import InfrastructureError
from pytest_agentbench.store.documents import VERSION


@pytest.mark.parametrize("version", [VERSION + 1, 10**9])
def test_documents_of_a_newer_version_are_never_changed(tmp_path, version):
    model_store, said = make_model_store(tmp_path), []
    newer = Stored(tmp_path, model_store.write_run(artifact("paid"), RUN_INPUT))
    verdict = Stored(tmp_path, model_store.write_evaluation(1, evaluation(fingerprint="c" * 64)))
    for path in (newer, verdict):
        path.update(schema_version=version, added=True)
    before = {path: path.read_bytes() for path in find_stored(tmp_path, "*")}
    assert model_store.find_run("sum", 1, "a" * 64) is None
    for attempt in (
        lambda: model_store.refuse_newer("sum", 1),
        lambda: model_store.write_run(artifact("mine"), RUN_INPUT),
        lambda: model_store.write_run(artifact("mine", key="b" * 64), RUN_INPUT),
        lambda: model_store.write_evaluation(1, evaluation()),
        lambda: newer.run(),
        lambda: verdict.evaluation(),
    ):
        with pytest.raises(InfrastructureError) as raised:
            attempt()
        said.append(str(raised.value))
    assert {path: path.read_bytes() for path in find_stored(tmp_path, "*")} == before
    for text in said:
        assert f"found schema_version {version}, expected at most {VERSION}" in text
        assert "--agentbench-output" in text
    assert [str(newer if "run_1" in text else verdict) in text for text in said] == [True] * 6


def test_the_newer_verdict_alone_is_refused_too(tmp_path):
    model_store = make_model_store(tmp_path)
    model_store.write_run(artifact(), RUN_INPUT)
    verdict = Stored(tmp_path, model_store.write_evaluation(1, evaluation()))
    verdict.update(schema_version=VERSION + 1)
    with pytest.raises(InfrastructureError, match="final_result_1"):
        model_store.refuse_newer("sum", 1)
    model_store.refuse_newer("sum", 2)


@pytest.mark.parametrize("version", [1, 0, -1, True, 1.0, "1", None, [1], VERSION + 0.5])
def test_no_other_version_is_guessed_at(tmp_path, version):
    path = Stored(tmp_path, make_model_store(tmp_path).write_run(artifact(), RUN_INPUT))
    path.update(schema_version=version)
    with pytest.raises(InfrastructureError, match="schema_version"):
        path.run()
