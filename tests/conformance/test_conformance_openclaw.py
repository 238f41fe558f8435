"""The reference's OpenClaw case with its agent and suite, unmodified, on the real program; only the image is ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from conformance_support import CONFIG, asked, run, served
from support.openclaw_here import OPENCLAW_IMAGE, needs_openclaw

CAMPAIGNS = CONFIG / "campaigns"
PROFILE = {
    "schema_version": 1,
    "run_profile_id": "local_image",
    "title": "openclaw_smoke with the image that is here",
    "openclaw": {"agent_id": "support_agent", "image": OPENCLAW_IMAGE, "timeout_seconds": 600},
}
REPORT = "# Report\n\nNothing to report.\n"
STEPS = [
    {"tool_calls": [{"name": "write", "arguments": {"path": "report.md", "content": REPORT}}]},
    {"content": "report.md is written."},
]

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not CONFIG.is_dir(), reason="the conformance data does not lie beside this checkout"),
    needs_openclaw,
]


def test_the_reference_case_passes_with_its_suite_and_its_agent(tmp_path: Path) -> None:
    """Its agent.yaml has a `sandbox` that no version of OpenClaw takes; its model is reached over HTTP on loopback."""
    profile = tmp_path / "local_image.yaml"
    profile.write_text(yaml.safe_dump(PROFILE))
    (tmp_path / "scripts").mkdir()
    with served(
        tmp_path / "scripts", [{"matches": asked("Produce report.md in the workspace."), "steps": STEPS}]
    ) as url:
        report = run(
            url, CAMPAIGNS, tmp_path / "outputs", "cases",
            "--agentbench-suite=openclaw_smoke_suite", f"--agentbench-run-profile={profile}",
        )  # fmt: skip
    [row] = report["runs"]
    assert (row["case_id"], row["model_id"], row["outcome"]) == ("openclaw_smoke", "baseline_model", "passed"), row
    assert {check["check_id"]: check["outcome"] for check in row["checks"]} == {
        "oc-final-response": "passed",
        "oc-report-md": "passed",
    }
    artifact = json.loads((tmp_path / "outputs" / row["artifact"]).read_text())
    assert [change["path"] for change in artifact["changes"]] == ["report.md"]
    assert artifact["sandbox"]["image"] == OPENCLAW_IMAGE
    assert not list(CAMPAIGNS.rglob("__pycache__"))
