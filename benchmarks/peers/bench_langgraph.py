"""LangGraph with its SQLite checkpointer: `python bench_langgraph.py --scenario sequential --dir DIR`.

Threads and `invoke`, for both scenarios: `ainvoke` with AsyncSqliteSaver was tried and took 1.2 to 1.5 times
as long. A loop through one node, because a chain of 1,000 nodes took three times as long: kinder to the peer.
In the scenario `looking`, whose steps may begin before the one before them is on disk, LangGraph has the setting with
the same meaning: `durability="async"`.
"""

import os
import sqlite3
import sys
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict

os.environ |= {"LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "false"}  # before langgraph reads them
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script: our package is not found

from langgraph.checkpoint.sqlite import SqliteSaver  # type: ignore[import-not-found, unused-ignore]
from langgraph.graph import END, START, StateGraph  # type: ignore[import-not-found, unused-ignore]

from benchmarks.peers.measure import Measurement, Scenario, expect, main, timed


class State(TypedDict):
    total: int
    goal: int


def step(state: State) -> dict[str, int]:
    return {"total": state["total"] + 1}


def after(state: State) -> str:
    return "step" if state["total"] < state["goal"] else str(END)


def measure(scenario: Scenario, folder: Path) -> Measurement:
    durability = "async" if scenario.name == "looking" else "sync"
    # The saver takes one connection for all threads and guards it with a lock of its own.
    with closing(sqlite3.connect(folder / "langgraph.db", check_same_thread=False)) as connection:
        connection.execute("PRAGMA synchronous=FULL")
        saver = SqliteSaver(connection)
        saver.setup()  # creates the tables and turns WAL on

        builder = StateGraph(State)
        builder.add_node("step", step)
        builder.add_edge(START, "step")
        builder.add_conditional_edges("step", after, ["step", END])
        graph = builder.compile(checkpointer=saver)

        def execute(number: int, steps: int) -> int:
            # Each step is one of LangGraph's; it counts one more for the start.
            config: Any = {"configurable": {"thread_id": str(number)}, "recursion_limit": steps + 10}
            state: State = {"total": 0, "goal": steps}
            return int(graph.invoke(state, config, durability=durability)["total"])

        seconds = timed(execute, scenario)

        journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
        synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
        expect("SQLite's settings", (journal, synchronous), ("wal", 2))
        # Steps, the input and the start are a checkpoint each; without them nothing durable happened.
        whole = connection.execute(
            "SELECT count(*) FROM (SELECT 1 FROM checkpoints GROUP BY thread_id HAVING count(*) >= ?)",
            (scenario.steps_each,),
        ).fetchone()[0]
        expect("executions with all their checkpoints", whole, scenario.rounds * scenario.executions)
    return Measurement(seconds, f"SqliteSaver, durability={durability}, SQLite journal_mode=WAL synchronous=FULL")


if __name__ == "__main__":
    main("langgraph", version("langgraph"), measure)
