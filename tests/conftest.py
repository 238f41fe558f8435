import os

import pytest
from hypothesis import settings

pytest_plugins = ["pytester"]
os.environ.pop("GITHUB_ACTIONS", None)  # sessions of tests tell the job nothing that these run in
settings.register_profile("any machine", deadline=None)  # how long an example takes says nothing on a busy one
settings.load_profile("any machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # A module that a test writes anew within a second, in as many bytes, would run as it was. Not before tests are
    # collected, and so not where workers are started: what is imported by then is compiled once for all processes
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    for item in items:
        item.add_marker(pytest.mark.timeout(600))  # what waits for ever fails, and the others go on
