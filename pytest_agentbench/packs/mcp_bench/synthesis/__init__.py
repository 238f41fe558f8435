"""New tasks for MCP servers, made by a model and checked."""
