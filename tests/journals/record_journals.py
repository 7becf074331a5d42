"""Records the journals of this release: real plans, run, killed, answered and changed through the real command line.

    python tests/journals/record_journals.py v1

writes `v1-NAME.jsonl` (the events, one a line, byte for byte as the journal holds them), `v1-NAME.snapshot.json` (what
they fold to) and `v1-NAME.history.json` (the record and the times of its steps). What is there already is never written
again: these files are how we know that a newer Windlass still reads what an older one wrote. Run it once for every
release that adds to the journal's format.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from test_stored_journals import history_of

import windlass
from windlass import AgentRequest, AgentResult, Health, Host
from windlass.core import events as ev
from windlass.core.events import decode
from windlass.core.state import fold
from windlass.core.view import snapshot
from windlass.engine.commit_writer import head_of
from windlass.ports import ComposedTool
from windlass.testing import ScriptedRunner, Turn
from windlass.tools.composed import FolderComposedStore

HERE = Path(__file__).parent

PLAIN = """
name: plain
description: outputs, a fan-out, a condition; everything goes well
inputs: {who: "wörld ☃", numbers: [1, 2, 3]}
limits: {parallel: 2, timeout: 5m}
steps:
  - id: greet
    name: say hello
    run: echo {{ ("hello " ~ inputs.who) | quote }}; echo aside >&2
  - id: square
    foreach: inputs.numbers
    run: echo $(( {{ item }} * {{ item }} ))
  - id: never
    when: inputs.numbers | length > 5
    run: exit 1
  - id: after-never
    needs: [never]
    run: exit 1
  - id: report
    tool: files.write
    with:
      path: report.txt
      content: "{{ steps.greet.output.stdout }}{{ steps.square.output | map(attribute='stdout') | join }}"
"""

TROUBLE = """
name: trouble
description: retries, failures of every importance but critical, and what they skip
limits: {parallel: 3}
steps:
  - id: flaky
    run: |
      if [ "$WINDLASS_ATTEMPT" -le 2 ]; then echo "try $WINDLASS_ATTEMPT" >&2; exit 75; fi
      echo "worked at $WINDLASS_ATTEMPT"
    retry: {delay: 10ms, max: 2}
  - id: starved
    run: |
      if [ "$WINDLASS_REDUCED" = 0 ]; then kill -9 $$; fi
      echo "reduced $WINDLASS_REDUCED times"
    retry: {delay: 10ms}
  - id: nice-to-have
    importance: optional
    run: [there-is-no-such-program]
  - id: goes-on
    needs: [nice-to-have]
    run: "echo without it: {{ steps['nice-to-have'].output }}"
  - id: items
    foreach: [good, bad]
    run: '[ {{ item }} = good ]'
  - id: lost
    needs: [items]
    run: exit 0
  - id: mends
    when: steps.items.status == 'failed'
    run: echo mended
  - id: too-slow
    timeout: 50ms
    retry: {max: 0}
    run: sleep 100
"""

KILLED = """
name: killed
description: the driver is killed while two attempts are in flight, one of which may happen only once
steps:
  - id: before
    run: echo before
  - id: pay
    needs: [before]
    effect: once
    run: echo paid
  - id: look
    needs: [before]
    effect: none
    run: echo looked
  - id: after
    needs: [pay, look]
    run: echo after
"""

ANSWERS = """
name: answers
inputs: {to: ann}
steps:
  - id: allowed
    approve: always
    run: echo to {{ inputs.to }}
  - id: denied
    approve: always
    approve_within: 2d
    run: echo never
  - id: depends
    needs: [denied]
    run: echo never
"""

CRITICAL = """
name: critical
steps:
  - id: vital
    importance: critical
    run: while [ ! -e started ]; do :; done; echo broken >&2; exit 3
  - id: other
    run: touch started; exec sleep 100
  - id: rest
    needs: [other]
    run: exit 0
"""

CODE = """
name: code
description: a program with calls at once, one that fails and is caught, one that is asked about, and a composed tool
inputs: {names: [ann, bob]}
steps:
  - id: work
    approve: sensitive
    grants: ["files.*", greet]
    code: |
      const files = await Promise.all(inputs.names.map((name) => tools.greet({name})));
      let missing = "";
      try { await tools.files.read({path: "nowhere.txt"}); } catch (error) { missing = error.category; }
      console.log(`${files.length} written`);
      await tools.files.delete({path: files[0]});
      return {files, missing};
  - id: broken
    retry: {max: 0}
    code: |
      return await tools.files.read({path: "nowhere.txt"});
"""
GREET = """
await tools.files.write({path: `${args.name}.txt`, content: `hello ${args.name} ☃`});
return `${args.name}.txt`;
"""

UNDO = """
name: undo
description: steps whose changes of files are taken back afterwards, one of them of several items
inputs: {names: [ann, bob]}
steps:
  - id: write
    tool: files.write
    with: {path: wörd.txt, content: after}
  - id: each
    foreach: inputs.names
    tool: files.write
    with: {path: "{{ item }}.txt", content: "{{ item }}"}
  - id: move
    needs: [write]
    tool: files.move
    with: {from: wörd.txt, to: moved/wörd.txt}
"""

REDONE = """
name: redone
description: steps that are retried with other arguments, and skipped, after the execution has ended
limits: {parallel: 1}
steps:
  - id: broken
    run: exit 3
  - id: items
    foreach: [good, bad, ugly]
    run: '[ {{ item | quote }} != bad ] || [ -e mended ] && echo {{ item | quote }}'
    retry: 0
  - id: hopeless
    run: [there-is-no-such-program]
  - id: after
    needs: [broken, items, hopeless]
    run: "echo after {{ steps.hopeless.status }}"
  - id: handles
    when: steps.items.status == 'failed'
    run: "echo {{ steps.items.errors | length }} of {{ steps.items.output | length }} failed"
"""

GUARDED = """
name: guarded
description: a file that changes under an approved diff, and a step that answers its own question
steps:
  - id: save
    tool: files.write
    with: {path: guarded.txt, content: after}
    approve: always
  - id: attack
    run: windlass approve $WINDLASS_EXECUTION save || [ $? = 4 ]
"""

AGENTS = {
    "name": "agents",
    "budget": {"usd": 0.5},
    "steps": [
        {"id": "design", "agent": "architect", "prompt": "Design it.", "runtime": "claude-code"},
        {"id": "build", "agent": "developer", "prompt": "Build it.", "needs": ["design"], "runtime": "open-code"},
    ],
}
SPENT = {"tokens_in": 1000, "tokens_out": 100}


async def play_agents(home: Path, workdir: Path, on_overrun: str) -> None:
    """A runtime that is missing, a question in the middle, a fallback, a budget that is passed and raised."""
    away = ScriptedRunner(name="claude-code", health=Health(False, "not installed"))
    asks = Turn().say("I look around. ").act("Read", "README.md").ask("Bash", {"command": "make"})
    here = ScriptedRunner(
        [
            asks.spend(**SPENT, usd=0.6).done("The design."),
            Turn().say("half").fail("refused", category="configuration", elsewhere=True),
        ],
        name="open-code",
    )
    plan = windlass.Plan.model_validate(AGENTS)
    budget = {"on_overrun": on_overrun}
    async with windlass.open(home, runners=[away, here], budget=budget) as engine:
        execution = await engine.start(plan, workdir=workdir)
        async for entry in engine.follow(execution.id):
            if isinstance(entry.event, ev.ApprovalAsked):
                await engine.approve(execution.id, "design", by="ann", note="go on")
            elif isinstance(entry.event, ev.StepWaiting) and entry.event.reason == "budget":
                await engine.allow_budget(execution.id, allow=False, step="build", by="ann")
    if on_overrun == "proceed":
        return
    away.health = Health(True, "installed by now")
    away = ScriptedRunner([Turn().spend(**SPENT).done("Built.")], name="claude-code")
    here = ScriptedRunner([Turn().fail("refused", category="configuration", elsewhere=True)], name="open-code")
    more = ev.BudgetAnswered(time.time(), True, "ann", usd=5.0)
    async with windlass.open(home, runners=[away, here], budget=budget) as engine:
        await (await engine.resume(execution.id, budget=[more])).wait()


CROWD = {
    "name": "crowd",
    "budget": {"usd": 0.3},
    "steps": [
        {"id": "one", "agent": "developer", "prompt": "Do it.", "runtime": "cli"},
        {"id": "two", "agent": "developer", "prompt": "Do it.", "runtime": "cli"},
    ],
}


class Slow(ScriptedRunner):
    """Its agents end when somebody waits for them."""

    waited = asyncio.Event()

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        await self.waited.wait()
        return await super().run(request, host)


async def play_crowd(home: Path, workdir: Path) -> None:
    """Two agents at once with room for one; the second passes the limit."""
    runner = Slow([Turn(repeat=True).spend(**SPENT, usd=0.2).done("Done.")], name="cli")
    async with windlass.open(home, runners=[runner]) as engine:
        execution = await engine.start(windlass.Plan.model_validate(CROWD), workdir=workdir)
        async for entry in engine.follow(execution.id):
            if isinstance(entry.event, ev.BudgetWaited):
                runner.waited.set()


class Talker(ScriptedRunner):
    """An agent whose conversation has everything that can be recorded of one."""

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        host.session("conversation-1")
        host.spoke("I look first.", "where is it?", ev.Usage(tokens_in=900, tokens_out=40, usd=0.01, source="prices"))
        host.acted("files.read", "notes.md", {"path": "notes.md"}, "1")
        host.returned("1", "files.read", "no such file", failed=True)
        host._contact.tell(ev.AgentSummaryRequested(time.time(), "talk", "ann"))  # type: ignore[attr-defined]
        host.summarised(
            by="key points", tokens_before=900, tokens_after=200, messages=3, text="It looked.", pinned=["a.md"]
        )
        host._contact.tell(ev.AgentTold(time.time(), "talk", "m1", "also the changelog", "ann"))  # type: ignore[attr-defined]
        await host.wait_told()
        await host.heard([message.id for message in host.told()], "steer")
        return AgentResult("Done.", session="conversation-1")


async def play_talk(home: Path, workdir: Path) -> None:
    """A conversation with a result, a summary and a message."""
    plan = {"name": "talk", "steps": [{"id": "talk", "agent": "developer", "prompt": "Write it.", "runtime": "cli"}]}
    async with windlass.open(home, runners=[Talker([], name="cli")]) as engine:
        await (await engine.start(windlass.Plan.model_validate(plan), workdir=workdir)).wait()


async def play_checks(home: Path, workdir: Path) -> None:
    """An agent whose work is checked, sent back, and passes."""
    step = {"id": "fix", "agent": "developer", "prompt": "Make it 42.", "runtime": "cli"}
    step |= {"check": "grep -qx 42 answer", "tries": 2}

    def turn(request: AgentRequest) -> Turn:
        answer = workdir / "answer"
        answer.write_text("42\n" if answer.exists() else "41\n")
        return Turn(session="conversation-2").say("It is done.")

    async with windlass.open(home, runners=[ScriptedRunner(turn, name="cli")]) as engine:
        plan = windlass.Plan.model_validate({"name": "checked", "steps": [step]})
        await (await engine.start(plan, workdir=workdir)).wait()


async def play_files(home: Path, workdir: Path) -> None:
    """An agent whose changes of files are recorded, and undone."""
    step = {"id": "fix", "agent": "developer", "prompt": "Make it 42.", "runtime": "cli"}

    def turn(request: AgentRequest) -> Turn:
        (workdir / "changed").write_text("42\n")
        return Turn().say("It is done.")

    async with windlass.open(home, runners=[ScriptedRunner(turn, name="cli")]) as engine:
        plan = windlass.Plan.model_validate({"name": "files", "steps": [step]})
        state = await (await engine.start(plan, workdir=workdir)).wait()
        await engine.undo(state.id, "fix", by="ann")


async def play_placed(home: Path, workdir: Path) -> None:
    """Two workers share an execution; one is lost with a step that may happen only once."""
    steps = [
        {"id": "look", "run": "echo looked"},
        {"id": "pay", "needs": ["look"], "run": "sleep 60", "effect": "once"},
    ]
    async with windlass.open(home) as engine:
        one, two = (engine.shared("temporal", worker) for worker in ("one-1", "two-2"))
        id = await engine.create(windlass.Plan.model_validate({"name": "placed", "steps": steps}), workdir=workdir)
        begun = fold([(await engine.journal.read(id))[0].event])
        begun.apply(started := ev.ExecutionStarted(time.time(), "temporal"))
        await engine.journal.append(id, 1, [started], head=head_of(begun))
        await one.turn(id, hold=False)
        await one.attempt(id, "look", 1)
        await two.turn(id, hold=False)
        lost = asyncio.create_task(one.attempt(id, "pay", 1))
        async for entry in engine.follow(id):
            if isinstance(entry.event, ev.AttemptPlaced) and entry.event.step == "pay":
                break
        lost.cancel()
        await asyncio.wait({lost})
        await two.attempt(id, "pay", 1)
        await two.turn(id, hold=False)


async def play_kept(home: Path, workdir: Path) -> None:
    """An agent whose files are kept in a store that other machines share."""
    (workdir / "store").mkdir()

    def turn(request: AgentRequest) -> Turn:
        request.scratch.mkdir(parents=True)
        (request.scratch / "conversation").write_text("42\n")
        return Turn().say("It is done.")

    step = {"id": "fix", "agent": "developer", "prompt": "Make it 42.", "runtime": "cli"}
    runners = [ScriptedRunner(turn, name="cli")]
    async with windlass.open(home, runners=runners, store=str(workdir / "store")) as engine:
        plan = windlass.Plan.model_validate({"name": "kept", "steps": [step]})
        await (await engine.start(plan, workdir=workdir)).wait()


def git(repository: Path, *arguments: str) -> None:
    names = {f"GIT_{who}_{what}": "ann" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    subprocess.run(["git", *arguments], cwd=repository, env={**os.environ, **names}, check=True)


def make_repository(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "commit", "-qm", "first", "--allow-empty")
    return folder


async def play_merge(home: Path, workdir: Path) -> None:
    """Two agents write the same file; one resolves the conflict, the other gives up."""
    repository = make_repository(workdir / "merged")
    fix = {"id": "fix", "foreach": ["1", "2", "3"], "prompt": "Make it {{ item }}.", "runtime": "cli"}
    fix |= {"workspace": "worktree", "check": "true", "tries": 1}
    merge = {"id": "merge", "merge": "fix", "retry": 0}

    def turn(request: AgentRequest) -> Turn:
        number = request.task.rpartition(" ")[2]
        if request.session is None or number != "3.":
            (request.workdir / "answer").write_text(f"{number} {request.session}\n")
        return Turn(session=f"conversation-of-{number}").say("It is done.")

    os.environ["XDG_DATA_HOME"] = str(workdir / "data")
    async with windlass.open(home, runners=[ScriptedRunner(turn, name="cli")]) as engine:
        plan = windlass.Plan.model_validate({"name": "merged", "limits": {"parallel": 1}, "steps": [fix, merge]})
        await (await engine.start(plan, workdir=repository)).wait()


async def play_worktree(home: Path, workdir: Path) -> None:
    """An agent in a worktree, which is removed after its work is merged."""
    repository = make_repository(workdir / "repository")
    step = {"id": "fix", "prompt": "Make it 42.", "runtime": "cli", "workspace": "worktree"}

    def turn(request: AgentRequest) -> Turn:
        (request.workdir / "answer").write_text("42\n")
        return Turn().say("It is done.")

    os.environ["XDG_DATA_HOME"] = str(workdir / "data")
    async with windlass.open(home, runners=[ScriptedRunner(turn, name="cli")]) as engine:
        plan = windlass.Plan.model_validate({"name": "worktree", "steps": [step]})
        state = await (await engine.start(plan, workdir=repository)).wait()
        git(repository, "merge", "-q", f"windlass/{state.id}/fix")
        await engine.workspaces(state.id, clean=True, by="ann")


class Recorder:
    """A project of its own, in which the real command line is run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Nothing of this machine and its user ends up in the recording.
        self.env = {
            "PATH": f"/usr/bin:/bin:{Path(sys.executable).parent}",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "LOGNAME": "ann",
        }
        if "PYTHONPATH" in os.environ:
            self.env["PYTHONPATH"] = os.environ["PYTHONPATH"]

    def write(self, plan: str) -> None:
        (self.folder / "plan.yaml").write_text(plan)

    def windlass(self, line: str, *, code: int, fault: str = "") -> None:
        argv = [sys.executable, "-m", "windlass", *shlex.split(line)]
        env = {**self.env, "WINDLASS_FAULT": fault} if fault else self.env
        done = subprocess.run(argv, cwd=self.folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != code:
            sys.exit(f"windlass {line}: exit code {done.returncode}, not {code}\n{done.stderr}")

    def _rows(self, sql: str, *parameters: str) -> list[tuple[bytes]]:
        db = sqlite3.connect(self.folder / ".windlass" / "windlass.db")
        try:
            return db.execute(sql, parameters).fetchall()
        finally:
            db.close()

    @property
    def newest(self) -> str:
        return str(self._rows("SELECT id FROM executions ORDER BY id DESC LIMIT 1")[0][0])

    def events(self) -> list[bytes]:
        sql = "SELECT body FROM events JOIN executions ON key = execution WHERE id = ? ORDER BY seq"
        return [bytes(body) for (body,) in self._rows(sql, self.newest)]


def recordings(recorder: Recorder) -> Iterator[str]:
    """Runs one plan after another; whenever it yields, the newest execution is one to keep, under that name."""
    run = recorder.windlass

    recorder.write(PLAIN)
    run("run plan.yaml", code=0)
    yield "plain"

    recorder.write(TROUBLE)
    run("run plan.yaml", code=1)
    yield "trouble"
    run(f"fork {recorder.newest} --from items", code=1)
    yield "fork"

    recorder.write(KILLED)
    run("run plan.yaml", code=-9, fault="journal.after_commit:2")
    run(f"resume {recorder.newest}", code=3)
    yield "decision"
    run(f"resume {recorder.newest} --again pay", code=0)
    yield "killed"

    recorder.write(ANSWERS)
    run("run plan.yaml", code=3)
    yield "approval"
    run(f"approve {recorder.newest} allowed --note 'as agreed'", code=0)
    run(f"approve {recorder.newest} denied --deny --note 'not today'", code=0)
    run(f"resume {recorder.newest}", code=1)
    yield "answers"

    run("run plan.yaml", code=3)
    recorder.write(ANSWERS.replace("echo to", "echo dear") + "\n  - id: added\n    run: echo new\n")
    run(f"resume {recorder.newest} --accept-changes", code=3)
    run(f"cancel {recorder.newest}", code=0)
    yield "replanned-cancelled"

    recorder.write(CRITICAL)
    run("run plan.yaml", code=1)
    yield "critical"

    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    greet = ComposedTool("greet", GREET, schema, "Greets somebody in a file.", ("files.write",))
    FolderComposedStore(recorder.folder / ".windlass" / "composed-tools", recorder.folder / "user", list).save(greet)
    recorder.write(CODE)
    run("run plan.yaml", code=3)
    run(f"approve {recorder.newest} work --note 'no longer needed'", code=0)
    run(f"resume {recorder.newest}", code=1)
    yield "code"

    (recorder.folder / "wörd.txt").write_text("before")
    recorder.write(UNDO)
    run("run plan.yaml", code=0)
    for step in ("move", "write", "each"):
        run(f"undo {recorder.newest} {step}", code=0)
    yield "undo"

    recorder.write(REDONE)
    run("run plan.yaml --anyway", code=1)
    run(f"retry {recorder.newest} broken --with 'run=echo mended'", code=1)
    (recorder.folder / "mended").touch()
    run(f"retry {recorder.newest} items", code=1)
    run(f"skip {recorder.newest} hopeless", code=0)
    yield "redone"

    yield from guarded(recorder)

    for name, on_overrun in (("agents", "ask"), ("agents-warned", "proceed")):
        asyncio.run(play_agents(recorder.folder / ".windlass", recorder.folder, on_overrun))
        yield name
    asyncio.run(play_crowd(recorder.folder / ".windlass", recorder.folder))
    yield "agents-waited"
    asyncio.run(play_talk(recorder.folder / ".windlass", recorder.folder))
    yield "conversation"
    asyncio.run(play_checks(recorder.folder / ".windlass", recorder.folder))
    yield "checked"
    asyncio.run(play_files(recorder.folder / ".windlass", recorder.folder))
    yield "workspace"
    asyncio.run(play_placed(recorder.folder / ".windlass", recorder.folder))
    yield "placed"
    asyncio.run(play_kept(recorder.folder / ".windlass", recorder.folder))
    yield "kept"
    asyncio.run(play_worktree(recorder.folder / ".windlass", recorder.folder))
    yield "worktree"
    asyncio.run(play_merge(recorder.folder / ".windlass", recorder.folder))
    yield "merged"


def guarded(recorder: Recorder) -> Iterator[str]:
    file = recorder.folder / "guarded.txt"
    file.write_text("before")
    recorder.write(GUARDED)
    recorder.windlass("run plan.yaml", code=3)
    recorder.windlass(f"approve {recorder.newest} save", code=0)
    file.write_text("somebody's own work")
    recorder.windlass(f"resume {recorder.newest}", code=3)
    yield "guarded"


def main(release: str) -> None:
    with tempfile.TemporaryDirectory(prefix="windlass-recording-") as folder:
        os.environ["HOME"] = (
            folder  # the key of the home is there, for the commands and for the engines of this process
        )
        recorder = Recorder(Path(folder))
        for name in recordings(recorder):
            lines = recorder.events()
            journal = HERE / f"{release}-{name}.jsonl"
            if journal.exists():
                print(f"{journal.name} is there already and stays as it is")
                continue
            journal.write_bytes(b"\n".join([*lines, b""]))
            view = snapshot(fold(map(decode, lines)))
            text = json.dumps(view, indent=1, ensure_ascii=False) + "\n"
            (HERE / f"{release}-{name}.snapshot.json").write_text(text)
            text = json.dumps(history_of([decode(line) for line in lines]), ensure_ascii=False) + "\n"
            (HERE / f"{release}-{name}.history.json").write_text(text)
            print(f"{journal.name}: {len(lines)} events, {view['status']}")


if __name__ == "__main__":
    main(sys.argv[1])
