"""A server of tools that the example in orders.py starts: python stock.py speaks MCP over its stdin and stdout."""

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

app = MCPServer("stock")


@app.tool(annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True))
def in_stock(item: str) -> int:
    """How many of an item are in stock."""
    return len(item)


if __name__ == "__main__":
    app.run("stdio")
