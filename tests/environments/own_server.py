"""An MCP server as somebody writes one: notes that it keeps, and ways to break."""

import os

from mcp.server.fastmcp import FastMCP

server = FastMCP("notes", log_level="ERROR")
NOTES: dict[str, str] = {}


@server.tool()
def note(name: str, text: str = "") -> str:
    """Keep a text under a name.

    Args:
        name: under which
        text: what
    """
    NOTES[name] = text
    return f"{len(NOTES)} notes"


@server.tool()
def recall(name: str) -> str:
    """Read a note."""
    if name not in NOTES:
        raise ValueError(f"no note {name}")
    return NOTES[name]


@server.tool()
def die() -> str:
    """End the server."""
    os._exit(3)


if __name__ == "__main__":
    server.run()
