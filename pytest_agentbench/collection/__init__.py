"""Collection: case × model × repetition become items, with ids, keywords and marks."""

from pytest_agentbench.collection.begin import begin, choose
from pytest_agentbench.collection.collecting import collect_file, tell_apart
from pytest_agentbench.collection.files import PLANNER, BadRowNode, CaseFile, DatasetFile
from pytest_agentbench.collection.marked import PLAN_PARAM, finished_run, parametrize
from pytest_agentbench.collection.planning import TRUST, Planner, prepare, session_roots, session_trust

__all__ = [
    "PLANNER",
    "PLAN_PARAM",
    "TRUST",
    "BadRowNode",
    "CaseFile",
    "DatasetFile",
    "Planner",
    "begin",
    "choose",
    "collect_file",
    "finished_run",
    "parametrize",
    "prepare",
    "session_roots",
    "session_trust",
    "tell_apart",
]
