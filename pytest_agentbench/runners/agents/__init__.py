"""Run agents that are programs: adapters as data, how one is started, what it left, and the images they run in."""
