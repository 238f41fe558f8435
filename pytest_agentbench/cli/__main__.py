"""`python -m pytest_agentbench.cli`, for environments whose scripts are not on the path."""

import sys

from pytest_agentbench.cli import main

sys.exit(main())
