"""What an agent may call: the built-in tools, and the toolbox that stands between a model and any tool."""
