"""What an agent may call: the built-in tools, and the toolbox that stands between a model and any tool.

Others use: base, fetching, mcp.catalogue, mcp.connection, mcp.distraction, mcp.launching, mcp.servers, network,
readers, toolbox, web_client, web_tools
"""
