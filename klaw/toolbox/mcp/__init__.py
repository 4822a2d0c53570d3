"""Tools of MCP servers: other programs, on this machine or behind HTTP. What they say is data, never trusted."""
