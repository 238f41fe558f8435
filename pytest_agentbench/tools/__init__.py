"""Tools that an agent may call:
the built-in ones, those of MCP servers, and the toolbox between a model and any tool.
"""
