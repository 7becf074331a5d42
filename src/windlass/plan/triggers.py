"""Triggers of a plan: the times, files in a folder, or signed requests, by which it starts by itself (L1).

A plan holds its triggers as the data that was written, and only those who start plans by them read them here: an
execution has no use for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Annotated, Any, Literal

from windlass.globs import glob_filter
from windlass.plan.cron import cron_problem, zone_problem
from windlass.plan.load import NotAnInput, fitting_input
from windlass.plan.model import Budget, Duration, Plan, StepId
from windlass.plan.quantities import Wait
from windlass.plan.report import Report
from windlass.plan.schema import Complaint, keys_of, nearest, wrong_value
from windlass.plan.yamlread import Path
from windlass.values import After, CheckedValue, FieldBounds, ValidationError, data_path, field

__all__ = ["FolderWatch", "Trigger", "WebhookTrigger", "check_triggers", "triggers_of"]


def _valid(problem_of: Callable[[str], str]) -> After:
    """Refuses a text for the problem that the function finds in it."""

    def check(text: str) -> str:
        if problem := problem_of(text):
            raise ValueError(problem)
        return text

    return After(check)


_OF_TIMES = ("catch_up", "jitter")
HeaderName = Annotated[str, FieldBounds(pattern=r"^[A-Za-z0-9-]+$", min_length=1, max_length=100)]


class FolderWatch(CheckedValue):
    """Files in a folder that start a plan: each new or changed one."""

    path: str = field(min_length=1)
    """The folder, relative to the working directory."""
    files: str = field(default="*", min_length=1)
    """A pattern for the names of its files: `*.csv`."""
    settle: Duration = 5.0
    """Time for which a file must have been left unchanged: it may still be written."""
    input: StepId = "file"
    """The input of the plan that is given the file's path."""

    @classmethod
    def _before(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value

    def _after(self) -> FolderWatch:
        if "*" in self.path:
            raise ValueError("`path`: it is one folder; a pattern for the names of its files is `files`")
        if "/" in self.files:
            raise ValueError("`files`: it is a pattern for names, without `/`; the folder is `path`")
        try:
            glob_filter(self.files)
        except ValueError as error:
            raise ValueError(f"`files`: it is not a pattern: {error}") from None
        return self


class SecretVariable(CheckedValue):
    """The environment variable that holds a secret: the plan names it, and nothing that is stored has it."""

    from_: str = field(key="from", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)


class WebhookTrigger(CheckedValue):
    """Signed requests to the server that start a plan: each delivery once."""

    secret: SecretVariable
    """The secret by which a sender signs the body with HMAC-SHA256."""
    header: HeaderName = "X-Hub-Signature-256"
    """The header with the signature in hexadecimal digits, which `sha256=` may precede."""
    delivery: HeaderName = "X-GitHub-Delivery"
    """The header with the id of the delivery; without it, the body's digest is the id."""
    event: HeaderName = "X-GitHub-Event"
    """The header with the kind of event."""
    events: tuple[str, ...] = ()
    """Kinds of events that start it; empty is all."""
    input: StepId = "body"
    """The input of the plan that is given the body, which is JSON."""

    @classmethod
    def _before(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("secret"), str):
            raise ValueError("`secret`: it must not stand in the plan; name its variable: `secret: {from: NAME}`")
        return value


class Trigger(CheckedValue):
    """One way in which a plan starts by itself."""

    id: StepId
    cron: Annotated[str, _valid(cron_problem)] | None = None
    """Minute, hour, day of month, month and day of week: `0 3 * * *` is at 3:00 each day."""
    watch: FolderWatch | None = None
    """A folder whose new and changed files start it, each one once."""
    webhook: WebhookTrigger | None = None
    """Signed requests to `windlass serve` that start it, each delivery once."""
    zone: Annotated[str, _valid(zone_problem)] = "UTC"
    """The time zone of `cron` and of the day of a `budget`: `Europe/Berlin`."""
    catch_up: Wait = 3600.0
    """The longest delay of a start; a later one is missed."""
    overlap: Literal["skip", "queue", "allow"] = "skip"
    """At a time while an earlier execution is unfinished: start none, start it afterwards, or start it beside it."""
    jitter: Wait = 0
    """Longest time by which it starts later, so that not everything starts at once."""
    pause_after: int = field(default=0, ge=0, le=50)
    """Executions in a row that fail before it is paused; 0 never pauses it."""
    budget: Budget | None = None
    """Limit of what the agents of all its executions spend on one day."""
    inputs: dict[str, Any] = field(default_factory=dict)
    """Values for the plan's inputs."""

    def _after(self) -> Trigger:
        if sum(one is not None for one in (self.cron, self.watch, self.webhook)) != 1:
            raise ValueError("a trigger has exactly one of `cron`, `watch` and `webhook`")
        if self.cron is None and (wrong := [name for name in _OF_TIMES if name in self.model_fields_set]):
            raise ValueError(f"`{wrong[0]}`: it is for `cron`: what comes by itself is never too late")
        if self.cron is None and "overlap" not in self.model_fields_set:
            self.__dict__["overlap"] = "queue"  # no file and no delivery is left out unless that is asked for
        if self.budget is not None and self.overlap == "allow":
            raise ValueError(
                "`overlap`: `allow` does not go with a `budget`, which is for one execution after the other"
            )
        return self

    @property
    def schedule(self) -> str:
        """Its times or files in one line: another text makes it another schedule."""
        if self.watch is not None:
            return f"{self.watch.path}/{self.watch.files}"
        return "webhook" if self.webhook is not None else f"{self.cron} {self.zone}"

    @property
    def given(self) -> str:
        """The input that is given the file or the body; empty for times."""
        source = self.watch or self.webhook
        return source.input if source is not None else ""


def triggers_of(plan: Plan) -> list[Trigger]:
    """The triggers of a plan that was checked."""
    return [Trigger.model_validate(data) for data in plan.triggers]


def check_triggers(found: Any, inputs: Mapping[str, Any], report: Report) -> None:
    """Report the problems of triggers. What is no list of mappings is a problem of the plan's shape."""
    ids: set[str] = set()
    for index, data in enumerate(found if isinstance(found, list | tuple) else ()):
        if not isinstance(data, Mapping):
            continue
        name = data.get("id") if isinstance(data.get("id"), str) else index + 1
        for path, message, hint in _problems(data, inputs, ids):
            report.problem(f"trigger {name}: {message}", ("triggers", index, *path), hint)
        ids.add(str(data.get("id")))


def _problems(data: Mapping[str, Any], inputs: Mapping[str, Any], ids: Collection[str]) -> Iterator[Complaint]:
    given = data.get("inputs")
    values: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {}
    named: dict[str, Path] = {str(name): ("inputs", name) for name in values}
    try:
        trigger = Trigger.model_validate(data)
        if trigger.given:
            named.setdefault(trigger.given, ("watch" if trigger.watch else "webhook", "input"))
        if trigger.watch is not None:
            values[trigger.given] = trigger.watch.path  # like the file's path, it is text
    except ValidationError as error:
        yield from _in_words(error)
    if data.get("id") in ids:
        yield Complaint(("id",), "this id is already used by another trigger")
    for name, place in named.items():
        if name not in inputs:
            meant = nearest(name, inputs)
            hint = f"did you mean `{meant}`?" if meant else "name it in the plan's `inputs`"
            yield Complaint(place, f"the plan has no input `{name}`", hint)
        elif name in values:
            try:
                fitting_input(name, values[name], inputs[name])
            except NotAnInput as error:
                yield Complaint(place, error.message, error.hint)


_MODELS: dict[str, type[CheckedValue]] = {
    "watch": FolderWatch,
    "webhook": WebhookTrigger,
    "secret": SecretVariable,
    "budget": Budget,
}


def _in_words(error: ValidationError) -> Iterator[Complaint]:
    """Every error of the validator: its place, the problem, and a hint."""
    by_path: dict[Path, list[Any]] = {}
    for entry in error.errors(include_url=False):
        by_path.setdefault(data_path(entry["loc"]), []).append(entry)
    unknown = [path for path, entries in by_path.items() if entries[0]["type"] == "extra_forbidden"]
    meant = {path: nearest(str(path[-1]), _known_beside(path)) for path in unknown}
    misspelt = {(*path[:-1], word) for path, word in meant.items()}
    for path, entries in by_path.items():
        if path in meant:
            hint = f"did you mean `{meant[path]}`?" if meant[path] else f"known here: {', '.join(_known_beside(path))}"
            yield Complaint(path, f"unknown key `{path[-1]}`" + (f" in `{path[-2]}`" if path[1:] else ""), hint)
        elif entries[0]["type"] != "missing":
            yield wrong_value(path, entries)
        elif path not in misspelt:
            yield Complaint(path[:-1], f"`{'.'.join(map(str, path))}` is missing")


def _known_beside(path: Path) -> list[str]:
    return keys_of(_MODELS.get(str(path[-2]), Trigger) if path[1:] else Trigger)
