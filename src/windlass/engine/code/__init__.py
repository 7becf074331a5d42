"""Code steps, the `code` tool, and composed tools: programs that call tools through the same gates as steps (G1–G3)."""
