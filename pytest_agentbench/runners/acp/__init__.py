"""Agents that speak the Agent Client Protocol: a client of its version 1, and the runner `acp`."""
