"""Metrics of the server in Prometheus' form (I6). All names begin with `windlass_`.

Requests and the commits of the drivers here are counted as they happen. Figures of the whole home (executions by
status, money) are looked up on request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from windlass.core import events as ev
from windlass.core.breaker import Circuit
from windlass.core.resources import Resources
from windlass.ports import Spending

__all__ = ["CONTENT_TYPE_LATEST", "Metrics"]

_LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_STEPS = {ev.StepCompleted: "completed", ev.StepFailed: "failed", ev.StepSkipped: "skipped"}
_ATTEMPTS = {ev.AttemptFinished: "completed", ev.AttemptFailed: "failed", ev.AttemptStopped: "stopped"}


class Metrics:
    def __init__(self) -> None:
        on = self._registry = CollectorRegistry()
        self._requests = Counter(
            "windlass_http_requests", "Requests that were answered.", ["method", "route", "status"], registry=on
        )
        self._seconds = Histogram(
            "windlass_http_request_seconds",
            "From a request to the end of its answer.",
            ["route"],
            buckets=_LATENCIES,
            registry=on,
        )
        self._events = Counter(
            "windlass_events_appended", "Events that drivers here wrote, by type.", ["type"], registry=on
        )
        self._steps = Counter("windlass_steps", "Steps that ended here, by outcome.", ["outcome"], registry=on)
        self._attempts = Counter("windlass_attempts", "Attempts that ended here, by outcome.", ["outcome"], registry=on)
        self._computed = Counter(
            "windlass_used_cpu_seconds", "What attempts that ended here computed, where it is known.", registry=on
        )
        self._bytes = Counter(
            "windlass_used_bytes", "Bytes that attempts received and sent, where known.", ["direction"], registry=on
        )
        self._clients = Gauge("windlass_stream_clients", "Clients that are connected to the stream.", registry=on)
        self._dropped = Counter(
            "windlass_stream_clients_dropped", "Clients that were too slow and cut off.", registry=on
        )
        self._driven = Gauge("windlass_executions_driven", "Executions that this server drives.", registry=on)
        self._waiting = Gauge("windlass_attempts_waiting", "Attempts that wait for their turn or memory.", registry=on)
        self._dropped_before = 0
        self._home = _Home()
        self._registry.register(self._home)
        for outcome in ("completed", "failed", "skipped"):
            self._steps.labels(outcome)
        for outcome in ("completed", "failed", "stopped"):
            self._attempts.labels(outcome)
        for direction in ("received", "sent"):
            self._bytes.labels(direction)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answered request. The time that a socket was open is no latency."""
        self._requests.labels(method, route, str(status)).inc()
        if method != "WEBSOCKET":
            self._seconds.labels(route).observe(seconds)

    def committed(self, events: Sequence[ev.Event]) -> None:
        """Count the events of a commit."""
        for event in events:
            kind = type(event)
            self._events.labels(ev.type_of(event)).inc()
            if isinstance(event, ev.AttemptFinished | ev.AttemptFailed | ev.AttemptStopped):
                self._attempts.labels(_ATTEMPTS[kind]).inc()
                self._count(event.used)
            if kind is ev.AttemptFinished:
                self._steps.labels("completed").inc()
            elif kind in _STEPS:
                self._steps.labels(_STEPS[kind]).inc()

    def _count(self, used: Resources | None) -> None:
        """Count attempts alone: the figures of an attempt include everything used inside of it."""
        if used is not None:
            self._computed.inc(used.cpu or 0.0)
            self._bytes.labels("received").inc(used.received or 0)
            self._bytes.labels("sent").inc(used.sent or 0)

    def page(
        self,
        *,
        counts: dict[str, int],
        spent: Iterable[Spending],
        circuits: dict[str, str],
        waiting: int,
        driven: int,
        clients: int,
        dropped: int,
    ) -> bytes:
        """Everything, as text. `spent` is by runtime, `circuits` by breaker; `waiting` are attempts held back."""
        self._home.counts, self._home.spent, self._home.circuits = counts, list(spent), circuits
        self._waiting.set(waiting)
        self._driven.set(driven)
        self._clients.set(clients)
        self._dropped.inc(dropped - self._dropped_before)
        self._dropped_before = dropped
        return generate_latest(self._registry)


class _Home:
    """Figures of the home, as last looked up."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.spent: list[Spending] = []
        self.circuits: dict[str, str] = {}

    def collect(self) -> Iterable[Metric]:
        executions = GaugeMetricFamily("windlass_executions", "Executions of the home, by status.", labels=["status"])
        for status, count in self.counts.items():
            executions.add_metric([status], count)
        yield executions
        broken = GaugeMetricFamily(
            "windlass_breaker_open", "1 while a breaker is open or half open, 0 after failures.", labels=["name"]
        )
        for name, circuit in self.circuits.items():
            broken.add_metric([name], float(circuit != Circuit.CLOSED))
        yield broken
        cost = CounterMetricFamily("windlass_cost_usd", "Dollars spent whose price is known.", labels=["runtime"])
        unknown = CounterMetricFamily("windlass_cost_unknown", "Attempts of unknown cost.", labels=["runtime"])
        tokens = CounterMetricFamily("windlass_tokens", "Tokens read and written.", labels=["runtime", "direction"])
        for row in self.spent:
            cost.add_metric([row.heading], row.usd)
            unknown.add_metric([row.heading], row.unknown)
            tokens.add_metric([row.heading, "in"], row.tokens_in)
            tokens.add_metric([row.heading, "out"], row.tokens_out)
        yield from (cost, unknown, tokens)
