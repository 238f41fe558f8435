"""One of everything that a plugin can add to pytest-agentbench: each in a file of its own, to be copied."""
