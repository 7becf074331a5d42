"""Print the OpenAPI document of the server, from which the dashboard's types are made."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import windlass
from windlass.server.app import create_routes
from windlass.server.service import Service


async def document() -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        engine = windlass.open(Path(folder, "home"))
        try:
            return create_routes(Service(engine)).openapi()
        finally:
            await engine.close()


if __name__ == "__main__":
    json.dump(asyncio.run(document()), sys.stdout, indent=1)
