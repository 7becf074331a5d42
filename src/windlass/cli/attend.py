"""Asks the person at the terminal for approvals and about the budget, while the execution goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from typing import Any

from windlass.cli.session import attended, say, who
from windlass.cli.view import View
from windlass.core import events as ev
from windlass.core.approval import YES
from windlass.core.budget import shown
from windlass.engine.engine import Engine
from windlass.errors import NotPermitted, UsageError, WindlassError

__all__ = ["ApprovalPrompt"]


class ApprovalPrompt:
    """Answers requests for approval: with `yes` by itself, else by asking, else not at all."""

    def __init__(self, engine: Engine, execution: str, view: View, *, yes: bool) -> None:
        self._engine = engine
        self._execution = execution
        self._view = view
        self._yes = yes
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._saving: set[asyncio.Task[None]] = set()
        """Answers that also save a rule: they are carried through, whatever becomes of their question."""
        self._one_at_a_time = asyncio.Lock()

    def take(self, event: ev.Event, *, past: bool = False) -> None:
        """React to an event; `past` means that it is from before this process took the execution up."""
        if isinstance(event, ev.ExecutionReplanned):
            # Open questions are asked anew, if they still are to be asked.
            self._dismiss_all()
        elif isinstance(event, ev.ApprovalAsked) and (self._yes or attended()):
            self._begin(event.step, self._ask(event))
        elif isinstance(event, ev.StepWaiting) and event.reason == "budget" and event.until is None:
            if not past:  # on a resume it is looked again whether there is room, and asked anew if there is none
                self._begin(event.step, self._ask_for_money(event))
        elif isinstance(event, ev.BudgetAnswered) and event.allow:
            self._dismiss_all()
        elif isinstance(event, ev.ApprovalAnswered | ev.StepFailed) and event.step in self._asking:
            # Answered elsewhere, or too late: take the question off the screen.
            self._asking.pop(event.step).cancel()

    def _begin(self, step: str, asking: Coroutine[Any, Any, None]) -> None:
        if step in self._asking:
            self._asking.pop(step).cancel()
        self._asking[step] = asyncio.get_running_loop().create_task(asking)

    def _dismiss_all(self) -> None:
        for step in list(self._asking):
            self._asking.pop(step).cancel()

    async def close(self) -> None:
        for task in self._asking.values():
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
        await asyncio.gather(*self._saving)

    async def _ask(self, asked: ev.ApprovalAsked) -> None:
        allow, note = True, YES
        if not self._yes:
            from windlass.cli.always import rule_offer
            from windlass.engine.preview import asked_change, rests_on

            async with self._one_at_a_time:
                title = f"Step {self._name(asked.step)} asks to run {asked.tool}"
                about = ["", f"{title} with exactly:", *_pretty(asked.input)]
                state = self._view.state
                if state is not None and (change := asked_change(asked, state.workdir)):
                    about += ["which changes:", *change.split("\n")]
                if text := rests_on(asked.basis):
                    about.append(f"with: {text}")
                if asked.question:
                    about.append(asked.question)
                if forecast := await self._forecast():
                    about.append(f"forecast: {forecast}")
                if rule := await self._rule(asked):
                    about.append(rule_offer(rule))
                always = "[a]lways, " if rule else ""
                prompt = f"Allow it? [y]es, {always}[n]o, [l]ater: "
                known = {"yes": "y", "no": "n", "later": "l", **({"always": "a"} if rule else {})}
                answer = await self._answer(about, title, prompt, known, "y, a, n or l" if rule else "y, n or l")
            if answer == "a":
                self._saving.add(asyncio.get_running_loop().create_task(self._save(asked, rule)))
                return
            if answer in ("", "l"):
                await self._engine.pause(self._execution, by=who(), reason="approval")
                return
            allow, note = answer == "y", ""
        try:
            by = who()
            await self._engine.approve(self._execution, asked.step, allow=allow, by=by, note=note, digest=asked.digest)
        except NotPermitted as error:
            say(error.message)
            await self._engine.pause(self._execution, by="windlass", reason="approval")

    async def _answer(
        self,
        about: list[str],
        title: str,
        prompt: str,
        known: Mapping[str, str],
        choices: str,
        *,
        amounts: bool = False,
    ) -> str:
        """Ask until an answer is known, by its word or letter, or is an amount; no answer is one, too."""
        while True:
            typed = (await self._view.ask(about, title, prompt)).strip().lower()
            answer = known.get(typed, typed)
            if not answer or answer in known.values() or (amounts and _number(answer) is not None):
                return answer
            about = [f"please answer {choices}"]

    async def _save(self, asked: ev.ApprovalAsked, rule: str) -> None:
        """Allow what was asked and save the rule; if neither is possible, the question waits for a later answer."""
        from windlass.cli.always import allow_always

        try:
            await allow_always(self._engine, self._execution, asked.step, rule, digest=asked.digest)
        except WindlassError as error:
            say(error.message)
            if asked.step in (await self._engine.state(self._execution)).questions:
                await self._engine.pause(self._execution, by="windlass", reason="approval")

    def _name(self, step: str) -> str:
        """The step's id, and its name where it has one."""
        found = self._view.state.steps.get(step) if self._view.state is not None else None
        return f"{step} ({found.spec.name})" if found is not None and found.spec.name else step

    async def _rule(self, asked: ev.ApprovalAsked) -> str:
        """The rule that would allow this from now on; empty where there is none."""
        from windlass.cli.always import readable_rule

        try:
            return await readable_rule(self._engine, self._execution, asked.step)
        except UsageError:
            return ""

    async def _forecast(self) -> str:
        """The rest of the execution, for the person to know what the answer leads to."""
        state = self._view.state
        found = await self._engine.forecast(state) if state is not None else None
        return found.beside_question() if found is not None else ""

    async def _ask_for_money(self, asked: ev.StepWaiting) -> None:
        """Ask a person for more budget: `--yes` does not mean money. With nobody there the execution pauses."""
        if not attended():
            await self._engine.pause(self._execution, by="windlass", reason="budget")
            return
        offer = _amount(asked.needed, asked.unit)
        async with self._one_at_a_time:
            title = f"Step {self._name(asked.step)}: {asked.question}"
            prompt = f"Continue with a total limit of {offer}? [y]es, [n]o, or another amount: "
            answer = await self._answer(
                ["", f"{title}."], title, prompt, {"yes": "y", "no": "n"}, "y, n or an amount", amounts=True
            )
        limit = asked.needed if answer == "y" else _number(answer)
        usd = limit if asked.unit == "usd" else None
        tokens = int(limit) if limit is not None and asked.unit == "tokens" else None
        await self._engine.allow_budget(
            self._execution,
            allow=limit is not None,
            usd=usd,
            tokens=tokens,
            scope=asked.scope,
            step=asked.step,
            by=who(),
        )


def _amount(value: float | None, unit: str) -> str:
    if value is None:
        return "more"
    return shown(value, unit)


def _number(text: str) -> float | None:
    """An amount somebody typed, like `$2.50`; None for anything else."""
    try:
        value = float(text.lstrip("$"))
    except ValueError:
        return None
    return value if 0 < value < 1e12 else None


def _pretty(value: Any) -> list[str]:
    return json.dumps(value, indent=2, ensure_ascii=False).split("\n")
