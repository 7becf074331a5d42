"""A plan built in Python: own tools, events as they happen, an interrupt, and a resume.

python run.py
"""

import asyncio

import windlass
from windlass import Call, Plan, Step, tool
from windlass.core.events import AttemptStarted


@tool
def greet(name: str) -> str:
    """A greeting for one person."""
    return f"hello, {name}"


@tool(effect="repeatable")
async def rest(call: Call) -> int:
    """Take long at the first attempt, so that there is time to interrupt it."""
    await asyncio.sleep(60 if call.attempt == 1 else 0)
    return call.attempt


PLAN = Plan(
    name="greetings",
    inputs={"names": ["ana", "ben"]},
    steps=[
        Step(id="greet", foreach="inputs.names", tool="greet", with_={"name": "{{ item }}"}),
        Step(id="rest", needs="greet", tool="rest"),
        Step(id="print", needs="rest", run="echo {{ steps.greet.output | join('; ') | quote }}"),
    ],
)


async def main() -> None:
    async with windlass.open(tools=[greet, rest]) as engine:
        execution = await engine.start(PLAN)
        async for event in execution.events():
            if isinstance(event, AttemptStarted) and event.step == "rest":
                print("rest has begun: interrupt it")
                interrupting = asyncio.create_task(execution.interrupt())
        await interrupting
        state = await execution.state()
        print(f"it is {state.status} ({state.paused_for})")

        resumed = await engine.resume(execution.id)
        result = await resumed.result()
        print(f"it is {result['status']}")
        for step in result["steps"]:
            print(f"  {step['id']}: {step['attempts']} attempts, {step['output']}")


asyncio.run(main())
