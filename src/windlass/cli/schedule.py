"""`schedule`: plans that start by their triggers, and why one did not start (L1)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from windlass.cli.command import Argument, Group, Option
from windlass.cli.schedule_install import (
    EVERY_TIMER_HAS,
    SchedulerKind,
    TickCommand,
    install_ticks,
    missing_in_timer,
    place_of_variables,
    remove_ticks,
    scheduler_here,
    texts_of,
)
from windlass.cli.schedule_show import (
    firing_data,
    firing_line,
    is_continued,
    schedule_data,
    suggest_tick,
    tell_unread,
    trigger_head,
    unread_data,
)
from windlass.cli.session import (
    AsJson,
    CommandEnd,
    Home,
    attended,
    out,
    out_lines,
    print_json,
    say,
    suggest,
    who,
    with_engine,
)
from windlass.errors import UsageError

if TYPE_CHECKING:
    from windlass.engine.engine import Engine
    from windlass.engine.schedule import Schedule

__all__ = ["register"]

PlanFile = Annotated[Path, Argument(metavar="PLAN", help="Plan file with `triggers`")]
ScheduledPlanFile = Annotated[Path, Argument(metavar="PLAN", help="File or name of a scheduled plan")]
TriggerName = Annotated[str | None, Argument(metavar="TRIGGER", help="Only this one")]


def register(app: Group) -> None:
    text = "Start plans by their triggers, and ask why one did not start."
    group = Group("schedule", help=text, no_args_is_help=True)
    group.add(add)
    group.add(remove)
    group.add(list_triggers, "list")
    group.add(why)
    group.add(pause)
    group.add(resume)
    group.add(fire)
    group.add(tick)
    group.add(install)
    app.add_command(group)


def add(
    plan: PlanFile,
    workdir: Annotated[
        Path | None, Option("--workdir", "-C", metavar="DIR", help="Working directory of the steps")
    ] = None,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Let the triggers of a plan start it from now on."""

    async def work(schedule: Schedule) -> int:
        found = await schedule.add(plan, workdir or Path.cwd())
        if as_json:
            print_json(schedule_data(found))
        else:
            for view in found.triggers:
                out(trigger_head(view))
        lacks = await schedule.lacks(plan, workdir or Path.cwd())
        for line in lacks.missing:
            say(f"warning: it could not start now: {line}")
        for line in lacks.doubtful:
            say(f"warning: {line}")
        for line in lacks.advice:
            suggest(f"  → {line}")
        if names := [name for name in await schedule.variables(plan) if name not in EVERY_TIMER_HAS]:
            suggest(f"note: a timer has no variables of this shell; give it {', '.join(names)}: windlass docs triggers")
        suggest_tick(found)
        return 0

    _with_schedule(work, home, make=True)


def remove(plan: ScheduledPlanFile, home: Home = None) -> None:
    """Let the triggers of a plan start it no more. What they have started goes on."""

    async def work(schedule: Schedule) -> int:
        await schedule.remove(plan)
        say(f"{plan} is not scheduled any more")
        return 0

    _with_schedule(work, home)


def list_triggers(as_json: AsJson = False, home: Home = None) -> None:
    """List the triggers of scheduled plans with their next time and their last execution."""

    async def work(schedule: Schedule) -> int:
        found = await schedule.view()
        if as_json:
            print_json(schedule_data(found))
            return 0
        for view in found.triggers:
            last = next(
                (firing_line(firing, view.trigger.zone) for firing in view.state.firings), "nothing has come yet"
            )
            out(f"{view.plan.path} {trigger_head(view)}; last: {last}")
        tell_unread(found.unread)
        if found.triggers or found.unread:
            suggest_tick(found)
        else:
            say("No scheduled plans.")
        return 0

    _with_schedule(work, home)


def why(
    plan: ScheduledPlanFile,
    trigger: TriggerName = None,
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Maximum of past times to show")] = 10,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Show why a trigger did or did not start its plan: its next time, and what became of each time before."""

    from windlass.core.trigger_times import shown_time

    async def work(schedule: Schedule) -> int:
        found = await schedule.view(plan, files=True)
        chosen = found.of(trigger, plan)
        if as_json:
            print_json(schedule_data(found._replace(triggers=chosen), limit))
            return 0
        for view in chosen:
            out(trigger_head(view))
            pending = view.pending or []
            for file in pending[:limit]:
                out(f"  {file.name} waiting: {file.reason}")
            if len(pending) > limit:
                out(f"  and {len(pending) - limit} more files waiting")
            for firing in view.state.firings[:limit]:
                out(f"  {firing_line(firing, view.trigger.zone)}")
            if not view.state.firings and not pending:
                out("  nothing has come since it was scheduled")
            if (refused := view.refused) is not None:
                last = shown_time(refused.at, view.trigger.zone)
                out(f"  requests that were refused: {refused.number}, the last at {last}: {refused.reason}")
        tell_unread(found.unread)
        suggest_tick(found)
        return 0

    _with_schedule(work, home)


def pause(plan: ScheduledPlanFile, trigger: TriggerName = None, home: Home = None) -> None:
    """Pause the triggers of a plan: they start nothing until they are resumed."""
    _pause(plan, trigger, f"by {who()}", home)


def resume(plan: ScheduledPlanFile, trigger: TriggerName = None, home: Home = None) -> None:
    """Resume the triggers of a plan: they start it from their next time on."""
    _pause(plan, trigger, "", home)


def _pause(plan: Path, trigger: str | None, reason: str, home: str | None) -> None:
    async def work(schedule: Schedule) -> int:
        for name, changed in (await schedule.pause(plan, trigger, reason)).items():
            say(f"{name} is {'paused' if reason else 'resumed' if changed else 'not paused'}")
        return 0

    _with_schedule(work, home)


def fire(
    plan: ScheduledPlanFile,
    trigger: Annotated[str | None, Argument(metavar="TRIGGER", help="Which one, if the plan has several")] = None,
    file: Annotated[str, Option("--file", metavar="NAME", help="File in the folder that the trigger watches")] = "",
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Start a plan once now, in the background, exactly as its trigger would: to try it, or to make up for a time.

    It is none of the trigger's times: those come as before. It starts also while the trigger is paused.
    """

    async def work(schedule: Schedule) -> int:
        fired = await schedule.fire(plan, trigger, file)
        if as_json:
            print_json({"plan": fired.plan, "trigger": fired.trigger, **firing_data(fired.firing)})
        else:
            (view,) = (await schedule.view(plan)).of(fired.trigger, plan)
            out(f"{fired.trigger}: {firing_line(fired.firing, view.trigger.zone)}")
            if fired.firing.status != "refused":
                suggest(f"Running in the background. Follow with: windlass watch {fired.firing.execution}")
        return 1 if fired.firing.status == "refused" else 0

    _with_schedule(work, home)


def tick(as_json: AsJson = False, home: Home = None) -> None:
    """Start what is due in the background, and end; exit code 1 if something could not be started.

    Call it once a minute: a time that has come is decided on once, however often and by how many it is called.
    """

    async def work(schedule: Schedule) -> int:
        firings, unread = await schedule.tick()
        if as_json:
            told = [
                {
                    "plan": one.plan,
                    "trigger": one.trigger,
                    **firing_data(one.firing),
                    "continued": is_continued(one.firing),
                }
                for one in firings
            ]
            print_json({"firings": told, "unreadable": unread_data(unread)})
        else:
            known = (await schedule.view()).triggers if firings else []
            zones = {(view.plan.path, view.trigger.id): view.trigger.zone for view in known}
            for one in firings:
                word = "continued" if is_continued(one.firing) else one.firing.status
                line = firing_line(one.firing, zones.get((one.plan, one.trigger), "UTC"), word)
                out(f"{one.plan} {one.trigger}: {line}")
            tell_unread(unread)
            if attended() and not firings and not unread:
                say("nothing is due")
        return 1 if unread or any(one.firing.status == "refused" for one in firings) else 0

    _with_schedule(work, home)


def install(
    kind: Annotated[
        SchedulerKind | None, Option("--with", help="What calls it (default: what this machine has)")
    ] = None,
    show: Annotated[bool, Option("--print", help="Print what would be written, and write nothing")] = False,
    take_back: Annotated[bool, Option("--remove", help="Take back what was installed for this home")] = False,
    home: Home = None,
) -> None:
    """Have the system call `schedule tick` once a minute: by a systemd user timer, launchd or cron."""
    from windlass.homes import find_home

    if "WINDLASS_JOURNAL" in os.environ:
        raise UsageError(
            "a timer does not know the journal's address, which may hold a password",
            advice=("name it in your own settings: windlass config set journal URL",),
        )
    chosen, command = kind or scheduler_here(), TickCommand.of_home(find_home(home).resolve())
    if show:
        for file, text in texts_of(chosen, command).items():
            out_lines(f"# {file}\n{text}")
        _warn_of_variables(chosen, home)
        return
    if take_back:
        remove_ticks(chosen, command)
        say(f"{chosen} calls it no more")
        return
    install_ticks(chosen, command)
    say(f"{chosen} calls `schedule tick` once a minute for {find_home(home)}")
    if chosen == "systemd":
        suggest("to go on while you are not logged in: loginctl enable-linger")
    _warn_of_variables(chosen, home)


def _warn_of_variables(kind: SchedulerKind, home: str | None) -> None:
    """Name the variables of scheduled plans that the timer lacks: it has none of this shell but PATH."""

    async def work(schedule: Schedule) -> int:
        if missing := missing_in_timer(kind, await schedule.variables()):
            say(f"warning: scheduled plans have values from variables that {kind} does not have: {', '.join(missing)}")
            suggest(f"  → {place_of_variables(kind)}")
        return 0

    _with_schedule(work, home)


def _with_schedule(work: Callable[[Schedule], Awaitable[int]], home: str | None, *, make: bool = False) -> None:
    """Open the engine and the triggers of a home, do the work, and end with its exit code."""

    async def main(engine: Engine) -> int:
        from windlass.cli.detach import drive_elsewhere
        from windlass.engine.schedule import Schedule
        from windlass.journal.stores import HomeStores

        async def drive(execution: str) -> None:
            await drive_elsewhere(engine, execution)

        with tempfile.TemporaryDirectory() as aside:  # looking makes no home
            stores = HomeStores(engine.home, engine.settings.journal)
            store = (stores if stores.exist else HomeStores(Path(aside))).triggers()
            if loss := await engine.journal_loss():
                suggest(f"warning: {loss}")
            try:
                return await work(Schedule(engine, store, drive))
            finally:
                await store.close()

    raise CommandEnd(with_engine(main, home, make=make))
