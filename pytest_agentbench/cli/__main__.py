"""`python -m pytest_agentbench.cli`, where the script is not on the path."""

import sys

from pytest_agentbench.cli import main

sys.exit(main())
