"""Import: case files of other tools become cases and datasets of ours.

Others use: nothing
"""

from pytest_agentbench.pack import Pack
from pytest_agentbench.seams import Command

IMPORT = Command("turn case files of DeepEval, Inspect or promptfoo into cases", f"{__name__}.command")
PACK = Pack("importers", commands={"import": IMPORT})
