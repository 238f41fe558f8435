"""Tools that an agent may call: built-in tools, tools of MCP servers, and the toolbox between a model and any tool.

Others use: base, builtin, canned, fetching, mcp.catalogue, mcp.connection, mcp.launching, mcp.servers, network,
readers, skills, toolbox, web_client, web_tools
"""
