"""The command line on a PostgreSQL journal: the same commands, nothing in a local database (J2)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import psycopg
import pytest

PLAN = """
    name: two
    steps:
      - {id: a, run: echo one >> ran.txt}
      - {id: b, needs: [a], run: echo two >> ran.txt}
"""


def databases(home: Path) -> list[str]:
    return sorted(file.name for file in home.rglob("*.db*"))


def test_j2_a_plan_runs_on_postgresql_and_every_command_finds_it_there(
    windlass: Any, project: Any, postgres: str
) -> None:
    plan = project.plan(PLAN)
    ran = windlass("run", plan, "--json", "--journal", postgres).json
    assert ran["status"] == "completed"
    env = {"WINDLASS_JOURNAL": postgres}
    assert [found["id"] for found in windlass("list", "--json", **env).json] == [ran["id"]]
    assert windlass("status", ran["id"], "--json", **env).json["steps"][1]["status"] == "completed"
    assert "two" in windlass("history", "--by", "plan", **env).out
    windlass("budget", **env)
    windlass("notify", "list", **env)
    assert databases(project.home) == []
    assert windlass("list", "--json").json == [], "without the address, the home's own file is asked"


def test_j2_the_address_may_stand_in_the_users_settings(windlass: Any, project: Any, postgres: str) -> None:
    project.user_file("config.toml", f'journal = "{postgres}"')
    windlass("run", project.plan(PLAN))
    assert len(windlass("list", "--json").json) == 1
    assert databases(project.home) == []


def test_j2_l1_triggers_of_a_postgresql_journal_start_a_plan_once(windlass: Any, project: Any, postgres: str) -> None:
    text = "triggers: [{id: often, cron: '* * * * *', catch_up: 1d}]\nsteps: [{id: a, run: echo ran >> ran.txt}]"
    env = {"WINDLASS_JOURNAL": postgres}
    windlass("schedule", "add", project.plan(text), **env)
    with psycopg.connect(postgres) as session:
        session.execute("UPDATE schedule_triggers SET until = until - 600")
    told = windlass("schedule", "tick", "--json", **env).json["firings"]
    assert {one["status"] for one in told} == {"skipped", "started"}
    (started,) = (one["execution"] for one in told if one["status"] == "started")
    assert [one["id"] for one in windlass("list", "--json", **env).json] == [started]
    windlass("watch", started, **env)
    assert project.lines("ran.txt") == ["ran"]
    assert databases(project.home) == []


def test_j2_a_project_cannot_choose_the_journal(windlass: Any, project: Any) -> None:
    windlass("run", project.plan(PLAN))
    (project.home / "config.toml").write_text('journal = "postgresql://elsewhere/db"')
    assert "your own settings" in windlass("run", project.plan(PLAN), code=2).err


@pytest.mark.parametrize("point", ["journal.before_commit:2", "journal.before_commit:3", "journal.after_commit:2"])
def test_d2_killed_at_a_commit_it_goes_on_from_there(windlass: Any, project: Any, postgres: str, point: str) -> None:
    plan = project.plan(PLAN)
    env = {"WINDLASS_JOURNAL": postgres}
    windlass("run", plan, code=-9, WINDLASS_FAULT=point, **env)
    (left,) = windlass("list", "--json", **env).json
    windlass("resume", left["id"], **env)
    assert windlass("status", left["id"], "--json", **env).json["status"] == "completed"
    with psycopg.connect(postgres) as session:
        sql = "SELECT convert_from(body, 'UTF8')::json->>'step' FROM events WHERE body LIKE '%attempt.finished%'"
        found = session.execute(sql).fetchall()
    assert sorted(step for (step,) in found) == ["a", "b"], "no step finishes twice"


def test_d3_a_pause_from_another_process_arrives(windlass: Any, project: Any, postgres: str, until: Any) -> None:
    plan = project.plan("steps: [{id: a, run: sleep 300}, {id: b, needs: [a], run: echo done}]")
    env = {"WINDLASS_JOURNAL": postgres}
    running = windlass.background("run", plan, **env)
    until(lambda: "▶ a" in running.err, "the first step runs")
    (head,) = windlass("list", "--json", **env).json
    windlass("pause", head["id"], "--now", "--wait", "60", **env)
    assert running.ended().code == 3
    assert windlass("status", head["id"], "--json", **env).json["status"] == "paused"


@pytest.mark.parametrize(
    ("address", "words"),
    [("mysql://db/x", "an address like postgresql://"), ("postgresql://a:b@[x/y", "cannot be read")],
)
def test_a_wrong_address_is_refused_before_anything_runs(windlass: Any, project: Any, address: str, words: str) -> None:
    said = windlass("run", project.plan(PLAN), "--journal", address, code=2).err
    assert words in said
    assert ":b@" not in said
    assert not (project.path / "ran.txt").exists()


def test_what_works_on_files_alone_is_refused_by_name(windlass: Any, project: Any, postgres: str) -> None:
    windlass("run", project.plan(PLAN), "--journal", postgres)
    assert "pg_dump" in windlass("backup", "copy.tar", "--journal", postgres, code=2).err
    assert "pg_amcheck --install-missing" in windlass("doctor", "--deep", "--journal", postgres, code=1).out


@pytest.mark.parametrize("command", ["fork @last --from a", "fork @last --from a --detach", "checkpoint @last"])
def test_j2_a_folder_without_a_home_goes_on_with_executions_of_others_in_a_home_of_the_users_own(
    windlass: Any, project: Any, postgres: str, command: str
) -> None:
    windlass("run", project.plan(PLAN), "--journal", postgres)
    shutil.rmtree(project.home)
    windlass(*command.split(), "--journal", postgres)
    windlass("list", "--journal", postgres)
    assert (project.home / ".gitignore").exists()


def test_an_error_names_the_database_without_the_password(windlass: Any, project: Any, postgres: str) -> None:
    address = postgres.replace("postgres@", "ann:geheim@")
    said = windlass("list", "--journal", address, code=1)
    assert "geheim" not in said.out + said.err
    assert "ann@" in said.err
    assert "no such user" in said.err


def test_j2_the_steps_of_all_executions_can_be_queried(windlass: Any, project: Any, postgres: str) -> None:
    plan = project.plan("""
        steps:
          - {id: a, run: "echo one"}
          - {id: b, run: "echo no >&2; exit 3", retry: {max: 1, delay: 10ms, on: [logic]}, importance: normal}
          - {id: c, needs: [b], run: "echo never"}
          - {id: d, foreach: [1, 2], run: "echo {{ item }}"}
    """)
    windlass("run", plan, code=1, WINDLASS_JOURNAL=postgres)
    sql = (
        "SELECT step_number, step_id, status, retry_count, result->>'exit_code', error_message IS NOT NULL, "
        "started_at <= completed_at, created_at <= started_at FROM task_executions ORDER BY step_number, step_id"
    )
    with psycopg.connect(postgres) as session:
        rows = session.execute(sql).fetchall()
    assert [row[:3] for row in rows] == [
        *((1, "a", "completed"), (2, "b", "failed"), (3, "c", "skipped")),
        *((4, "d", "completed"), (4, "d[0]", "completed"), (4, "d[1]", "completed")),
    ]
    assert [row[5] for row in rows] == [False, True, False, False, False, False]
    assert rows[0][6:] == (True, True)
    assert rows[1][3] == 1


def test_j2_a_journal_moves_to_postgresql_and_back_and_is_the_same(
    windlass: Any, project: Any, postgres: str, tmp_path: Path
) -> None:
    windlass("run", project.plan(PLAN))
    windlass("run", project.plan("steps: [{id: ask, run: echo hi, approve: always}]", "asks.yaml"), code=3)
    first = windlass("journal", "copy", project.home, postgres, "--json").json
    assert (first["copied"], first["present"]) == (2, 0)
    env = {"WINDLASS_JOURNAL": postgres}
    (question,) = windlass("approvals", "--json", **env).json
    assert question["step"] == "ask"
    assert "two" in windlass("history", "--by", "plan", **env).out
    again = windlass("journal", "copy", project.home, postgres, "--json").json
    assert (again["copied"], again["present"], again["digest"]) == (0, 2, first["digest"])
    back = tmp_path / "back" / ".windlass"
    back.parent.mkdir()
    returned = windlass("journal", "copy", postgres, back, "--json").json
    assert (returned["copied"], returned["digest"], returned["events"]) == (2, first["digest"], first["events"])
    assert len(windlass("list", "--json", "--home", back).json) == 2


def test_j2_an_execution_that_differs_in_the_target_stops_the_copy(windlass: Any, project: Any, postgres: str) -> None:
    windlass("run", project.plan(PLAN))
    windlass("journal", "copy", project.home, postgres)
    with psycopg.connect(postgres) as session:
        session.execute("DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)")
    before = windlass("list", "--json", WINDLASS_JOURNAL=postgres).json
    said = windlass("journal", "copy", project.home, postgres, code=1).err
    assert "is another one in the target" in said
    assert windlass("list", "--json", WINDLASS_JOURNAL=postgres).json == before
