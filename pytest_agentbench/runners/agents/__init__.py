"""Run agents that are programs: adapters as data, start, output, and images."""
