"""pytest-agentbench: agent benchmarks are tests."""
