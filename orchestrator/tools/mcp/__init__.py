"""Servers of the Model Context Protocol as toolboxes. They come with the extra `mcp`."""

from orchestrator.tools.mcp.servers import HttpServer, StdioServer
from orchestrator.tools.mcp.toolbox import McpTool, McpToolbox, toolbox_of

__all__ = ["HttpServer", "McpTool", "McpToolbox", "StdioServer", "toolbox_of"]
