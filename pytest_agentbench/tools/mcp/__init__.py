"""MCP servers: start them in sandboxes, talk to them over stdio or HTTP, and offer their tools to agents."""
