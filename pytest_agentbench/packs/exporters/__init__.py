"""Export: the results of a session as files that other tools read.

Others use: nothing
"""

from pytest_agentbench.pack import Pack
from pytest_agentbench.seams import Command

EXPORT = Command("write results as logs of Inspect or as rows of Every Eval Ever", f"{__name__}.command")
PACK = Pack("exporters", commands={"export": EXPORT})
