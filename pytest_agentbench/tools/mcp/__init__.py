"""MCP servers: started where a run's commands may run, spoken to over stdio or HTTP, their tools offered to agents."""
