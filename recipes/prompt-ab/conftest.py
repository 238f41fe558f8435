"""An agent that answers in a sentence, unless it is asked for one word."""

import pytest


class Bot:
    model_id = "bot"

    def __call__(self, case):
        asked_short = "one word" in case.messages[-1].content
        return case.reference if asked_short else f"It is {case.reference}."


@pytest.fixture(scope="session")
def agentbench_runner():
    return Bot()
