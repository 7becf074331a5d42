"""A client of a running server: the same executions, over HTTP and WebSocket (`pip install 'windlass[server]'`).

from windlass.client import Client

async with Client.local() as client:                      # the server of this folder's home
    execution = await client.start(plan_file="plan.yaml")
    async for event in client.events(execution["id"]):    # goes on through restarts and cut lines
        print(event["progress"], event["type"])
"""

from __future__ import annotations

from windlass.client.client import Client
from windlass.client.errors import ClientError, Refused, Unreachable

__all__ = ["Client", "ClientError", "Refused", "Unreachable"]
