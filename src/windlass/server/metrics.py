"""Metrics of the server in Prometheus' form (I6). All names begin with `windlass_`.

Requests and the commits of the drivers here are counted as they happen. Figures of the whole home (executions by
status, money, open questions) are looked up on request.

Labels are bounded: names of tools, runtimes and models beyond a number of them count as `other`, and no name of a plan
or a step is a label.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from windlass.core import events as ev
from windlass.core.breaker import Circuit
from windlass.core.forecast.scores import BucketScore
from windlass.core.resources import Resources
from windlass.core.state import State
from windlass.ports import SpanCounts, Spending

__all__ = ["CONTENT_TYPE_LATEST", "Metrics"]

_LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_DURATIONS = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400, 86400)
_STEPS = {ev.StepCompleted: "completed", ev.StepFailed: "failed", ev.StepSkipped: "skipped"}
_ATTEMPTS = {ev.AttemptFinished: "completed", ev.AttemptFailed: "failed", ev.AttemptStopped: "stopped"}


_ENDS = ev.AttemptFinished | ev.StepCompleted | ev.StepFailed | ev.StepSkipped | ev.DecisionMade
"""Events with which a step may end."""
MOST_NAMES = 50
"""Values of one label; further ones count as `other`."""
MOST_BREAKERS = 200


class LabelLimit:
    """Keeps the first values of a label; all others are `other`."""

    def __init__(self, most: int = MOST_NAMES) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        if value not in self._known:
            if len(self._known) >= self._most:
                return "other"
            self._known.add(value)
        return value


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
        self._ended = Counter(
            "windlass_executions_finished", "Executions that ended here, by status.", ["status"], registry=on
        )
        self._execution_seconds = Histogram(
            "windlass_execution_seconds",
            "From an execution's creation to its end, waits for people included.",
            ["status"],
            buckets=_DURATIONS,
            registry=on,
        )
        self._step_seconds = Histogram(
            "windlass_step_seconds",
            "From a step's first attempt to its end; each item of a foreach counts.",
            ["tool", "status"],
            buckets=_DURATIONS,
            registry=on,
        )
        self._phases = Counter(
            "windlass_step_phase_seconds",
            "Seconds of steps that ended here: queued, waited (retry, quota, budget), person, worked.",
            ["tool", "phase"],
            registry=on,
        )
        self._failures = Counter(
            "windlass_attempt_failures", "Attempts that failed, by category.", ["tool", "category"], registry=on
        )
        self._retries = Counter(
            "windlass_retries", "Attempts that failed and are repeated, by category.", ["category"], registry=on
        )
        self._agents = Counter(
            "windlass_agent_attempts", "Attempts of agents that ended here.", ["runtime", "outcome"], registry=on
        )
        self._answers = Counter(
            "windlass_approvals_answered", "Questions that a person answered.", ["answer"], registry=on
        )
        self._answer_seconds = Histogram(
            "windlass_approval_wait_seconds", "From a question to its answer.", buckets=_DURATIONS, registry=on
        )
        self._tool, self._runtime = LabelLimit(), LabelLimit()
        self._dropped_before = 0
        self._home = _Home()
        self._registry.register(self._home)
        for outcome in ("completed", "failed", "skipped"):
            self._steps.labels(outcome)
        for outcome in ("completed", "failed", "stopped"):
            self._attempts.labels(outcome)
        for direction in ("received", "sent"):
            self._bytes.labels(direction)
        for status in ("completed", "partial", "failed", "cancelled"):
            self._ended.labels(status)
        for answer in ("allowed", "denied"):
            self._answers.labels(answer)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answered request. The time that a socket was open is no latency."""
        self._requests.labels(method, route, str(status)).inc()
        if method != "WEBSOCKET":
            self._seconds.labels(route).observe(seconds)

    def committed(self, state: State | None, events: Sequence[ev.Event]) -> None:
        """Count the events of a commit, with the state after it."""
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
            if state is not None:
                self._follow(state, event)

    def _follow(self, state: State, event: ev.Event) -> None:
        """Count what needs the state to be told."""
        if isinstance(event, _ENDS):
            self._step_ended(state, event.step)
        elif isinstance(event, ev.ExecutionFinished):
            self._ended.labels(event.status).inc()
            self._execution_seconds.labels(event.status).observe(max(0.0, event.at - state.created_at))
        elif isinstance(event, ev.AttemptFailed):
            tool = state.steps[event.step].prepared.tool if event.step in state.steps else ""
            self._failures.labels(self._tool(tool), str(event.failure.category)).inc()
        elif isinstance(event, ev.StepWaiting) and event.reason == "retry":
            error = state.steps[event.step].error if event.step in state.steps else None
            self._retries.labels(str(error.category) if error is not None else "unknown").inc()
        elif isinstance(event, ev.ApprovalAnswered):
            self._answers.labels("allowed" if event.allow else "denied").inc()
            asked = state.steps[event.step].approval if event.step in state.steps else None
            if asked is not None and asked.digest == event.digest:
                self._answer_seconds.observe(max(0.0, event.at - asked.asked_at))
        if isinstance(event, ev.AttemptFinished | ev.AttemptFailed | ev.AttemptStopped):
            agent = state.steps[event.step].agent if event.step in state.steps else None
            if agent is not None and agent.runtime:
                self._agents.labels(self._runtime(agent.runtime), _ATTEMPTS[type(event)]).inc()

    def _step_ended(self, state: State, name: str) -> None:
        step = state.steps.get(name)
        if step is None or not step.settled or step.children is not None:
            return  # a step with items is the sum of them
        tool = self._tool(step.prepared.tool)
        if step.started_at is not None and step.finished_at is not None:
            self._step_seconds.labels(tool, str(step.status)).observe(max(0.0, step.finished_at - step.started_at))
        phases = {"queued": step.queued, "waited": step.waited - step.person, "person": step.person}
        for phase, seconds in (phases | {"worked": step.worked}).items():
            if seconds > 0:
                self._phases.labels(tool, phase).inc(seconds)

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
        models: Iterable[Spending],
        questions: int,
        spans: SpanCounts | None,
        scores: Mapping[str, Sequence[BucketScore]],
        circuits: dict[str, str],
        waiting: int,
        driven: int,
        clients: int,
        dropped: int,
    ) -> bytes:
        """Everything, as text. `spent` is by runtime, `models` by model, `circuits` by breaker.

        `waiting` are attempts held back, `questions` those that wait for a person, `spans` None without traces;
        `scores` are those of forecasts, of the `time` and of the `cost`.
        """
        self._home.counts, self._home.spent, self._home.circuits = counts, list(spent), circuits
        self._home.models, self._home.questions, self._home.spans = list(models), questions, spans
        self._home.scores = scores
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
        self.models: list[Spending] = []
        self.questions = 0
        self.spans: SpanCounts | None = None
        self.scores: Mapping[str, Sequence[BucketScore]] = {}
        self._model = LabelLimit()

    def collect(self) -> Iterable[Metric]:
        executions = GaugeMetricFamily("windlass_executions", "Executions of the home, by status.", labels=["status"])
        for status, count in self.counts.items():
            executions.add_metric([status], count)
        yield executions
        broken = GaugeMetricFamily(
            "windlass_breaker_open", "1 while a breaker is open or half open, 0 after failures.", labels=["name"]
        )
        first = sorted(self.circuits.items(), key=lambda one: one[1] == Circuit.CLOSED)
        for name, circuit in first[:MOST_BREAKERS]:
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
        yield from self._by_model()
        yield GaugeMetricFamily("windlass_approvals_open", "Questions that wait for a person.", self.questions)
        yield from self._of_forecasts()
        if self.spans is not None:
            yield CounterMetricFamily("windlass_spans_exported", "Spans that were delivered.", self.spans.exported)
            yield CounterMetricFamily("windlass_spans_dropped", "Spans that were dropped.", self.spans.dropped)

    def _of_forecasts(self) -> Iterable[Metric]:
        labels = ["of", "done_percent"]
        count = GaugeMetricFamily("windlass_forecasts", "Forecasts that are scored, by part of the way.", labels=labels)
        inside = GaugeMetricFamily(
            "windlass_forecast_coverage", "Part of the outcomes in the 80 % band, by part of the way.", labels=labels
        )
        error = GaugeMetricFamily(
            "windlass_forecast_median_error", "Median deviation, as a part of the truth.", labels=labels
        )
        for of, scores in self.scores.items():
            for score in scores:
                values = [of, score.done_percent]
                count.add_metric(values, score.forecasts)
                inside.add_metric(values, score.inside)
                error.add_metric(values, score.error)
        return count, inside, error

    def _by_model(self) -> Iterable[Metric]:
        cost = CounterMetricFamily("windlass_model_cost_usd", "Dollars spent, by model.", labels=["model"])
        tokens = CounterMetricFamily("windlass_model_tokens", "Tokens, by model.", labels=["model", "direction"])
        sums: dict[str, list[float]] = {}
        for row in self.models:
            held = sums.setdefault(self._model(row.heading or "unknown"), [0.0, 0, 0])
            for place, value in enumerate((row.usd, row.tokens_in, row.tokens_out)):
                held[place] += value
        for model, (usd, read, written) in sums.items():
            cost.add_metric([model], usd)
            tokens.add_metric([model, "in"], read)
            tokens.add_metric([model, "out"], written)
        return cost, tokens
