"""Cases, runs and replies for the tests of judging, and an endpoint on loopback that gives those replies."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from pytest_agentbench.config.profiles import EvaluationProfile
from pytest_agentbench.records.base import DIMENSIONS
from pytest_agentbench.records.case import Case, Expectations, Message, Model, RunnerSpec
from pytest_agentbench.records.evaluation import CheckResult
from pytest_agentbench.records.run import FinalOutputEvent, MessageEvent, RunArtifact, ToolCallEvent, ToolResultEvent

EXPECTATIONS = Expectations.model_validate(
    {
        "hard_expectations": [{"text": "Says 4."}, {"text": "Says why.", "weight": 3}],
        "soft_expectations": [{"text": "Is friendly.", "weight": 0.5}],
    }
)
CHECK = CheckResult(
    check_id="said-four", kind="regex_match", dimensions=("task",), outcome="failed", message="no 4 in it"
)


def make_case(**fields) -> Case:
    given = {
        "case_id": "sum",
        "title": "A sum",
        "path": Path("/cases/sum/test.yaml"),
        "runner": RunnerSpec(type="llm_probe"),
        "messages": (Message(role="user", content="What is 2 + 2?"),),
    }
    return Case(**(given | fields))


def make_artifact(output: str | None = "It is four.", *, tools: int = 1, **fields) -> RunArtifact:
    trace: list = [MessageEvent(sequence=0, at=0.0, role="user", content="What is 2 + 2?")]
    for number in range(tools):
        trace += [
            ToolCallEvent(sequence=len(trace), at=0.1, call_id=f"c{number}", name="calculate", arguments={"n": number}),
            ToolResultEvent(
                sequence=len(trace) + 1, at=0.2, call_id=f"c{number}", name="calculate", content="result 4"
            ),
        ]
    if output is not None:
        trace += [
            MessageEvent(sequence=len(trace), at=0.3, role="assistant", content=output),
            FinalOutputEvent(sequence=len(trace) + 1, at=0.3, content=output),
        ]
    given = {
        "run_id": "r",
        "case_id": "sum",
        "runner_type": "llm_probe",
        "model": {"model_id": "gpt4o", "requested_model": "openai/gpt-4o", "label": "GPT-4o"},
        "repetition": 1,
        "fingerprint": "f" * 64,
        "status": "success",
        "started_at": datetime(2026, 1, 1, tzinfo=UTC),
        "duration_seconds": 1.0,
        "trace": tuple(trace),
    }
    return RunArtifact(**(given | fields))


def make_profile(**fields) -> EvaluationProfile:
    given = {
        "schema_version": 1,
        "evaluation_profile_id": "p",
        "title": "P",
        "judges": ({"judge_id": "strict", "type": "llm_probe", "model": "judge"},),
        "judge_runs": ({"judge_run_id": "main", "judge_id": "strict"},),
    }
    return EvaluationProfile(**(given | fields))


def reply(overall: float = 8, expectations: Expectations | None = None, **scores: float) -> dict:
    """A reply that keeps the contract."""
    answer = {
        "summary": f"Overall {overall}.",
        "dimensions": {name: {"evidence": ["seen"], "score": scores.get(name, overall)} for name in DIMENSIONS},
        "overall": {"evidence": ["seen"], "score": overall},
    }
    if expectations is not None:
        kinds = (("hard", expectations.hard_expectations), ("soft", expectations.soft_expectations))
        answer["expectations"] = [
            {"kind": kind, "index": index, "evidence": "seen", "met": 1}
            for kind, listed in kinds
            for index in range(len(listed))
        ]
    return answer


Answer = Callable[[dict, int], object]
"""From a request's body and its number (from 0) to what the endpoint says: text, or (status, error message)."""


class JudgeEndpoint:
    """Chat completions on loopback: `bodies` are the requests that came, in order."""

    def __init__(self, answer: Answer) -> None:
        self.bodies: list[dict] = []
        endpoint, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with lock:
                    number = len(endpoint.bodies)
                    endpoint.bodies.append(body)
                status, document = _response(answer(body, number))
                data = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.base_url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> JudgeEndpoint:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def model(self, name: str = "judge", **fields) -> Model:
        return Model(model_id=name, requested_model=name, base_url=self.base_url, api_key_env=None, **fields)


def _response(answered: object) -> tuple[int, dict]:
    if isinstance(answered, tuple):
        status, message = answered
        return status, {"error": {"message": message}}
    content = answered if isinstance(answered, str | None) else json.dumps(answered)
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return 200, {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "j",
        "choices": [choice],
        "usage": usage,
    }
