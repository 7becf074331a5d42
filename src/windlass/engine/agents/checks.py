"""Checks of an agent's work (K2): commands, tools and programs that run when the agent says that it is done.

A check that fails goes back to the agent as a message in its conversation. The message is in the same commit as the
result of the check, and messages are delivered once, also over a crash: so nothing is checked or said twice.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from windlass.clock import Clock
from windlass.core import events as ev
from windlass.core.agent import AgentState
from windlass.core.call_summary import call_summary
from windlass.core.decide import Policy
from windlass.engine.agents.file_changes import WorkRecorder, files_seen, worked_beside
from windlass.engine.agents.plan_output import plan_in, plan_problems, refused_plan
from windlass.engine.agents.protection import (
    give_tests_back,
    named_tests,
    require_named,
    require_recorded,
    restore_protected,
    restore_tests,
    touched_programs,
)
from windlass.engine.code.caller import ProgramOrigin, StepCaller
from windlass.errors import Category, Failure, ToolError, classify
from windlass.plan.check import ToolCatalog
from windlass.ports import Call, Contact, Tool, Toolbox
from windlass.redact import Redactor
from windlass.visible import last_lines

__all__ = ["WorkChecks", "asks_for_data", "check_and_end", "data_in", "run_check"]

Use: TypeAlias = Callable[[Tool, Mapping[str, Any], Call], Awaitable[Any]]
LONGEST_OUTPUT = 8_000
"""Characters of the end of a check's output that are recorded and told to the agent."""
_OF_DATA, _OF_PLAN = "the schema of `output`", "the plan in the result"
CHECK_ENV = {"PYTHONDONTWRITEBYTECODE": "1"}
"""Variables of a check's environment, unless they are set: a compiled file of Python may be taken for the next work."""


class WorkChecks:
    """The checks of one attempt of an agent step."""

    def __init__(
        self,
        arguments: Mapping[str, Any],
        call: Call,
        contact: Contact,
        clock: Clock,
        policy: Policy,
        catalog: ToolCatalog,
        files: WorkRecorder,
    ) -> None:
        """`catalog` is for plans that are the result of an agent."""
        self._own: Sequence[Mapping[str, Any]] = arguments.get("check", ())
        self._uses = (*self._own, *arguments.get("pick", ()))
        self._form: Mapping[str, Any] | Literal["plan"] | None = arguments.get("output")
        self._catalog, self._files = catalog, files
        self._protected: Sequence[str] | None = arguments.get("protect")
        """None: the tests that the checks name."""
        self._unmatched: tuple[str, ...] = ()
        """Names of `protect` that fitted no file when the agent began."""
        self._again = False
        """The checks run once more, on the agent's own tests."""
        self._tries = int(arguments.get("tries", 1))
        self._call, self._contact, self._clock, self._policy = call, contact, clock, policy

    @property
    def _none(self) -> bool:
        return not self._uses and self._form is None

    async def proven(self) -> str | None:
        """The result of an agent that was done when its last attempt broke off, if its work passes. Raises if a file
        of `protect` cannot be protected."""
        agent = self._contact.step.agent
        if self._protected:
            await asyncio.to_thread(require_recorded, self._protected, self._call)
            await self._find_unmatched(self._protected)
        if self._none or agent is None or agent.claim is None:
            return None
        claim, checked = agent.claim, agent.checked
        if checked is None:
            await self._files.check_again(agent)
        if agent.told:
            return None
        if checked is not None and checked.attempt == agent.lost and self._is_final(checked):
            raise self._refusal(checked, claim, can_go_on=True)  # it was cut off right before this
        if checked is not None:
            return claim if checked.passed else None
        return None if await self._send_back(claim, can_go_on=True) else claim

    async def _find_unmatched(self, names: Sequence[str]) -> None:
        """Find the names of `protect` that fit nothing before the agent's work; after it, files may be missing because
        of the agent. Raises for a name that is a mistake."""
        agent = self._contact.step.agent
        if agent is not None and agent.periods:
            self._unmatched = agent.unmatched
            return
        for one in await asyncio.to_thread(require_named, names, self._call):
            self._unmatched += (one.name,)
            self._note(f"warning: `protect` names {one.name}, and there is nothing of that name: it protects no file")

    def value(self, claim: str) -> Any:
        """The step's output: the agent's last words, or the data in them."""
        if self._form == "plan":
            return plan_in(claim)
        return claim if self._form is None else data_in(claim)

    async def send_back(self, claim: str, *, can_go_on: bool) -> bool:
        """Check the work. True if it failed and the agent was told; raises if that was the last try."""
        if self._none:
            return False
        now, step, attempt = self._clock.now(), self._call.step, self._call.attempt
        await self._contact.record(ev.AgentClaimed(now, step, attempt, claim))
        return await self._send_back(claim, can_go_on=can_go_on)

    async def _send_back(self, claim: str, *, can_go_on: bool) -> bool:
        agent = self._contact.step.agent
        assert agent is not None, "it has claimed something"
        number = agent.checks + 1
        restored, touched = await self._look_after_own_files(agent)
        if restored:
            await (self._files.remember() if self._protected is None else self._files.record("after"))
        results = await self._run_all_apart(claim)
        if restored and self._protected is None and all(result.passed for result in results):
            self._note(f"passed on the original {', '.join(restored)}: the agent's own follow")
            await asyncio.to_thread(give_tests_back, agent, named_tests(self._uses), self._call)
            await self._files.remember()
            restored, touched = (), (*restored, *touched)
            self._again = True
            results = await self._run_all_apart(claim)
            self._again = False
        now, step, attempt = self._clock.now(), self._call.step, self._call.attempt
        checked = ev.AgentChecked(
            now, step, attempt, number, tuple(results), restored, touched, unmatched=self._unmatched
        )
        which = "check before the agent goes on"
        if number:
            which = f"{'check' if self._uses else 'try'} {number} of {self._tries}"
        if checked.passed:
            root, tree = await files_seen(self._call, results)
            await self._contact.record(msgspec.structs.replace(checked, root=root, tree=tree))
            self._note(f"{which}: passed" if self._uses else f"its output passes ({results[-1].check})")
            return False
        failed = results[-1]
        self._note(
            f"{which}: failed ({failed.check})" if self._uses else f"{which}: its output does not pass ({failed.check})"
        )
        if self._is_final(checked) or not can_go_on:
            await self._contact.record(checked)
            raise self._refusal(checked, claim, can_go_on=can_go_on)
        self._contact.tell(checked)
        await self._contact.record(ev.AgentTold(now, step, uuid.uuid4().hex[:12], _told(failed, restored), "check"))
        return True

    async def _run_all_apart(self, claim: str) -> list[ev.CheckResult]:
        """Results of the checks, and no files that they wrote."""
        try:
            return await self._run_all(claim)
        finally:
            await asyncio.shield(self._files.take_back())

    async def _look_after_own_files(self, agent: AgentState) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Put protected files back, and find programs of the checks that the agent changed; both are named."""
        if self._protected is None:
            tests = named_tests(self._uses)
            if tests and (other := worked_beside(self._contact.state, [self._contact.step])) is not None:
                self._note(f"tests are not protected: {other.id} works in the same folder at the same time")
                tests = []
            restored = await asyncio.to_thread(restore_tests, agent, tests, self._call)
            allowed = "; `protect: []` in the step would leave them"
        else:
            restored = await asyncio.to_thread(restore_protected, agent, self._protected, self._call)
            allowed = ""
        if restored:
            self._note(f"the agent changed protected files, which were put back: {', '.join(restored)}{allowed}")
        try:
            touched = await asyncio.to_thread(touched_programs, agent, self._uses, self._call)
        except (ToolError, OSError):
            touched = ()  # only a remark, which no step fails for
        touched = tuple(name for name in touched if name not in restored)
        if touched:
            self._note(f"the agent changed what the check runs: {', '.join(touched)}")
        return restored, touched

    async def look(self) -> list[ev.CheckResult]:
        """Results of the checks, up to the first that fails, of work that no agent claims."""
        return await self._run_all("")

    async def _run_all(self, claim: str) -> list[ev.CheckResult]:
        """Results of the checks in their order, up to the first that fails."""
        results: list[ev.CheckResult] = []
        if self._form is not None:
            results.append(await asyncio.to_thread(self._fits, claim))
            if not results[-1].passed:
                return results
        for position, use in enumerate(self._uses, 1):
            results.append(await self._run(use, position))
            if not results[-1].passed:
                break
        return results

    def _fits(self, claim: str) -> ev.CheckResult:
        """Check the form of the result."""
        if self._form == "plan":
            problems = plan_problems(claim, self._catalog)
            return ev.CheckResult(_OF_PLAN, not problems, 0.0, None, "\n".join(problems)[-LONGEST_OUTPUT:], True)
        from windlass.schemas import misfits  # takes a while to import

        assert self._form is not None
        try:
            problems = misfits(self._form, data_in(claim), part="key")
        except ValueError as error:
            problems = [str(error)]
        return ev.CheckResult(_OF_DATA, not problems, 0.0, None, "\n".join(problems), True)

    async def _run(self, use: Mapping[str, Any], position: int) -> ev.CheckResult:
        await self._ask(use["tool"], arguments_of(use))
        self._note(f"checking: {_shown(use)}")
        tool, timer = self._contact.tools.get(use["tool"]), asyncio.timeout(use.get("timeout"))
        if tool is not None and tool.is_program:
            name = self._program_name(position)
            origin = ProgramOrigin(StepCaller(self._contact, self._policy, self._call.workdir, timer), name)
            call = self._call.within(name, origin, line=True)
        else:
            call = self._call.within(f"check-{position}")
        return await run_check(use, call, self._contact.tools, self._contact.use, timer)

    def _program_name(self, position: int) -> str:
        """The same over a crash, so that no call that was recorded is repeated; another one each time that there is
        something new to check, so that earlier calls are not taken for its own. A merge claims nothing."""
        agent = self._contact.step.agent
        if agent is None or agent.claim is None:
            return f"check-{position}-{uuid.uuid4().hex[:8]}"
        return f"check-{agent.rounds}-{position}{'-again' if self._again else ''}"

    async def _ask(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Ask a person first, where the settings say so for this tool."""
        if self._policy.asks_for(self._contact.step.spec.approve, name):
            answer = await self._contact.ask(name, dict(arguments), self._call.workdir, use="check")
            if not answer.allow:
                raise ToolError("the check was denied by a person", category=Category.PERMISSION)

    def _is_final(self, checked: ev.AgentChecked) -> bool:
        """True if the agent is not told of a check that failed. What fails the check of `pick` is out, unless a person
        has it tried again (number 0)."""
        out = checked.number > 0 and self._was_to_pick(checked)
        return not checked.passed and (out or checked.number >= self._tries)

    def _was_to_pick(self, checked: ev.AgentChecked) -> bool:
        """True if the last of these checks is one of `pick`."""
        return sum(not result.of_form for result in checked.results) > len(self._own)

    def _refusal(self, checked: ev.AgentChecked, claim: str, *, can_go_on: bool) -> ToolError:
        """The failure of work that does not pass, with the agent's text."""
        failed = checked.results[-1]
        to_pick = self._was_to_pick(checked)
        failure = self._not_picked(failed) if to_pick else self._given_up(checked.number, failed, can_go_on)
        return ToolError.of(failure, claim)

    def _given_up(self, number: int, failed: ev.CheckResult, can_go_on: bool) -> Failure:
        times = "once" if number == 1 else f"{number} times"
        why = "" if can_go_on else "; the runtime keeps no conversation to go on in"
        return Failure(
            Category.LOGIC,
            f"the {'result' if failed.of_form else 'work'} was checked {times} and does not pass{why}: "
            f"{check_and_end(failed)}",
            advice=(
                f"go on in the same conversation: windlass retry {self._call.execution} {shlex.quote(self._call.step)}",
                f"tell the agent how: windlass say {self._call.execution} {shlex.quote(self._call.step)} TEXT",
                "raise `tries` of the step",
            ),
        )

    def _not_picked(self, failed: ev.CheckResult) -> Failure:
        return Failure(
            Category.LOGIC,
            f"the work does not pass the check of `pick`: {check_and_end(failed)}",
            advice=(f"have the agent go on: windlass retry {self._call.execution} {shlex.quote(self._call.step)}",),
        )

    def _note(self, text: str) -> None:
        self._call.output("note", f"{text}\n")


def check_and_end(failed: ev.CheckResult) -> str:
    """The check, with the end of its output."""
    code = f" (exit code {failed.exit_code})" if failed.exit_code is not None else ""
    return f"{failed.check}{code}{last_lines(failed.output)}"


def arguments_of(use: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a check's tool."""
    source = {"source": use["source"]} if "source" in use else {}
    return {**use["with"], **source}


async def run_check(
    check: Mapping[str, Any], call: Call, tools: Toolbox, use: Use, timer: asyncio.Timeout
) -> ev.CheckResult:
    """Run one check, within the time of `timer`. Raises if it cannot run, which is no fault of the work."""
    name, shown, tool = check["tool"], _shown(check), tools.get(check["tool"])
    if tool is None:
        raise ToolError(f"the check needs the tool {name}, which is not here", category=Category.CONFIGURATION)
    began = time.monotonic()
    failure: Failure | None = None
    seen = _OutputEnd(call.output)
    call = msgspec.structs.replace(call, output=seen.take, env={**CHECK_ENV, **call.env})
    try:
        async with timer:
            output: Any = await use(tool, arguments_of(check), call)
    except TimeoutError:
        if not timer.expired():
            raise
        said = f"{seen.text}\n" if seen.text else ""
        message = f"{said}the check took longer than its timeout of {check['timeout']:g} s and was stopped"
        failure, output = Failure(Category.RESOURCE, message), None
    except ToolError as error:
        failure, output = classify(error), error.output
        unknown_command = name == "shell" and failure.category is Category.CONFIGURATION
        if unknown_command or failure.category is Category.PERMISSION:  # the agent cannot mend these
            raise ToolError(
                f"the check cannot run: {failure.message}",
                category=failure.category,
                advice=(f"try it by hand in {call.workdir}: {shown}", *failure.advice),
            ) from error
    seconds = round(time.monotonic() - began, 3)
    is_command = isinstance(output, Mapping) and "exit_code" in output
    code = output["exit_code"] if is_command else None
    text = _both(output) if is_command else (failure.message if failure is not None else "")
    hide = Redactor(call.variables).text
    if not text and failure is not None and failure.message != f"exit code {code}":
        text = failure.message
    return ev.CheckResult(hide(shown), failure is None, seconds, code, hide(text)[-LONGEST_OUTPUT:])


class _OutputEnd:
    """Passes on what a check prints, and keeps the end of it."""

    def __init__(self, pass_on: Callable[[str, str], None]) -> None:
        self._pass_on = pass_on
        self.text = ""

    def take(self, stream: str, text: str) -> None:
        self._pass_on(stream, text)
        self.text = (self.text + text)[-LONGEST_OUTPUT:]


def _shown(use: Mapping[str, Any]) -> str:
    """The check as people read it: a command, a program, or a tool with its arguments."""
    if use["tool"] == "shell" and "line" in use["with"]:
        return str(use["with"]["line"])
    if "source" in use:
        first = use["source"].strip().partition("\n")[0]
        return f"{use['tool']}: {first[:80]}"
    return f"{use['tool']} {call_summary(dict(use['with']))}".strip()


def asks_for_data(form: Mapping[str, Any]) -> str:
    """The part of the prompt that tells the agent about the form of its result."""
    schema = json.dumps(form, ensure_ascii=False, indent=2)
    return (
        "When you are done, give the result: one JSON value that fits the JSON Schema below. If you have a tool "
        "StructuredOutput, give it with that tool. If not, it is your last message, and nothing else, no text before "
        f"or after it.\n\n```json\n{schema}\n```"
    )


def data_in(text: str) -> Any:
    """The JSON value that a text is, or that its last block between fences is. Raises `ValueError`."""
    blocks = re.findall(r"^```[a-z]*[ \t]*\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        if not blocks:
            raise ValueError("the last message is not JSON") from None
    try:
        return msgspec.json.decode(blocks[-1])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError(f"the last block of the last message is not JSON: {error}") from None


def _both(output: Mapping[str, Any]) -> str:
    return "\n".join(filter(None, (str(output.get(name, "")).rstrip("\n") for name in ("stdout", "stderr"))))


def _told(failed: ev.CheckResult, restored: Sequence[str]) -> str:
    if failed.check == _OF_PLAN:
        return refused_plan(failed.output)
    if failed.of_form:
        stop = "" if failed.output.endswith(("?", ".")) else "."
        return (
            f"Your result is not what was asked for:\n\n{failed.output}{stop}\n\n"
            "Give it again, in the same way: one JSON value that fits the schema, and nothing else."
        )
    code = f" with exit code {failed.exit_code}" if failed.exit_code is not None else ""
    kept = (
        f"You changed files that belong to the check, and they were put back: {', '.join(restored)}. Leave them as "
        "they are.\n\n"
        if restored
        else ""
    )
    printed = f"The end of its output:\n\n{failed.output}" if failed.output else "It printed nothing."
    return (
        f"Your work was checked, and it is not done: this check failed{code}:\n\n    {failed.check}\n\n"
        f"{printed}\n\n{kept}"
        "Find the cause and mend it. Do not change the check itself. It will run again when you are done."
    )
