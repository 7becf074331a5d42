"""The way to a Temporal server: starts the workflows of executions, and says "look" to them."""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from typing import TYPE_CHECKING

from windlass.errors import UsageError

if TYPE_CHECKING:
    from temporalio.client import Client

    from windlass.journal.postgres_workers import WorkerTable

__all__ = ["TemporalCluster", "need_temporal"]

_log = logging.getLogger("windlass.engine")

TASK_TIMEOUT = timedelta(seconds=5)
"""Time after which a workflow task of a dead worker is given to another one."""


def need_temporal() -> None:
    """Raise `UsageError` if the packages are missing."""
    try:
        import temporalio  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"a cluster needs more packages: {error}", advice=("pip install 'windlass[temporal,postgres]'",)
        ) from error


class TemporalCluster:
    """The workers of one database that a Temporal server gives their work."""

    def __init__(self, address: str, table: WorkerTable) -> None:
        """`address` is HOST:PORT or HOST:PORT/NAMESPACE; certificates and keys come from Temporal's own variables."""
        need_temporal()
        from windlass.journal.postgres_workers import TEMPORAL

        self.driver = TEMPORAL
        self.table = table
        self._address = address
        self._target, _, self._namespace = address.partition("/")
        self._client: Client | None = None
        self._name = ""

    async def connect(self) -> None:
        await self.client()
        if not await self.table.lines():
            raise UsageError(
                "there is no worker to run it, so nothing was started",
                advice=(f"start one, on any machine: windlass worker --temporal {self._address} --journal URL",),
            )

    async def client(self) -> Client:
        if self._client is None:
            from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
            from temporalio.client import Client
            from temporalio.envconfig import ClientConfig
            from temporalio.service import RPCError, RPCStatusCode

            given = ClientConfig.load_client_connect_config()
            given["target_host"] = self._target
            if self._namespace:
                given["namespace"] = self._namespace
            try:
                client = await Client.connect(**given)
                wanted = DescribeNamespaceRequest(namespace=client.namespace)
                await client.workflow_service.describe_namespace(wanted)
            except RPCError as error:  # another refusal is met again, and told, where the namespace is used
                if error.status == RPCStatusCode.NOT_FOUND:
                    name, create = client.namespace, "temporal operator namespace create --namespace"
                    raise UsageError(
                        f"the Temporal server {self._target} has no namespace {name}",
                        advice=(f"create it: {create} {name} --address {self._target}",),
                    ) from error
            except RuntimeError as error:
                said = re.search(r'message: "([^"]+)"', str(error))
                reason = said[1] if said else str(error).splitlines()[0][:300]
                raise UsageError(
                    f"the Temporal server {self._target} cannot be reached: {reason}",
                    advice=(
                        "start one, or check the address: the setting `temporal`",
                        "read about it: windlass docs cluster",
                    ),
                ) from error
            self._client = client
        return self._client

    async def queue(self, tag: str = "", worker: str = "") -> str:
        """The task queue of all workers of this database, of those with a tag, or of one."""
        self._name = self._name or await self.table.cluster()
        return f"windlass-{self._name}" + (f"@{worker}" if worker else f".{tag}" if tag else "")

    async def start(self, execution: str, *, hold: bool, look: bool = True) -> None:
        """Start the workflow, unless there is one; with `look`, have it take a turn."""
        from temporalio.common import WorkflowIDConflictPolicy
        from temporalio.service import RPCError

        from windlass.temporal.workflow import EXECUTION, LOOK, Order

        client = await self.client()
        try:
            await client.start_workflow(
                EXECUTION,
                Order(execution, hold),
                id=_workflow_id(execution),
                task_queue=await self.queue(),
                task_timeout=TASK_TIMEOUT,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                start_signal=LOOK if look else None,
            )
        except RPCError as error:
            _log.warning("Temporal did not take execution %s; a worker starts it later: %s", execution, error.message)

    async def look(self, execution: str) -> None:
        """Have the workflow take a turn, if there is one."""
        from temporalio.service import RPCError

        from windlass.temporal.workflow import LOOK

        client = await self.client()
        try:
            await client.get_workflow_handle(_workflow_id(execution)).signal(LOOK)
        except RPCError as error:
            _log.debug("no signal to execution %s: %s", execution, error.message)

    async def close(self) -> None:
        await self.table.close()


def _workflow_id(execution: str) -> str:
    return f"windlass-{execution}"
