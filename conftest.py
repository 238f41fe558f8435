"""Where a project brings its own agent. Here nothing is overridden: the cases run on models, such as `--model demo`."""

# import pytest
#
#
# async def my_agent(case, context):
#     """Ask your agent; `context.workspace` is the run's own folder. Return its answer as text, or a RunOutput."""
#     return "Paris"
#
#
# @pytest.fixture(scope="session")
# def agentbench_runner():
#     return my_agent
