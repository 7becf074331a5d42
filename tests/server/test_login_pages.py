"""Doors for people without the token: the link of one approval, and every route that stays shut (C6, TRUST: access)."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from server_process import Api

import windlass as library
from windlass import Plan, Step
from windlass.homes.key import HomeKey
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project, Windlass
    from server_process import Server


NEW = "<script>new</script>\u202e\x9b2J"
ASKS = {
    "name": "<b>asks</b>",
    "steps": [
        {
            "id": "write",
            "tool": "files.write",
            "with": {"path": "a.txt", "content": f"{NEW}\n"},
            "approve": "always",
        }
    ],
}


def test_c6_a_link_shows_one_question_and_takes_one_answer(server: Server, project: Project, until: Any) -> None:
    project.file("a.txt", "old\n")
    execution = server.api.start(ASKS)["id"]
    (asked,) = until(lambda: server.api.get("/api/approvals").json)
    assert [x for x in asked["diff"].splitlines() if x[0] in "+-"][2:] == ["-old", f"+{NEW}"]
    nobody = Api(server.address, "")
    page = nobody.get(asked["link"])
    text = page.body.decode()
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "&lt;script&gt;new&lt;/script&gt;\\u202e\\u009b2J" in text, "nothing turns the text around or stays unseen"
    assert not {"\u202e", "\x9b"} & set(text)
    assert "<script" not in text
    assert "<b>asks" not in text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for foreign in ({}, {"Origin": "null"}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        refused = nobody("POST", asked["link"], headers={**form, **foreign}, raw=b"answer=allow")
        assert refused.status == 403, foreign
    assert page.headers["referrer-policy"] == "same-origin", "else browsers send `Origin: null` with our own form"
    form["Origin"] = server.address
    assert nobody("POST", asked["link"], headers=form, raw=b"answer=perhaps").status == 400
    answered = nobody("POST", asked["link"], headers=form, raw=b"answer=allow&note=from+the+train")
    assert answered.status == 200
    done = until(
        lambda: found if (found := server.api.get(f"/api/executions/{execution}").json)["progress"] == 100 else None
    )
    assert done["status"] == "completed"
    assert (project.path / "a.txt").read_text() == f"{NEW}\n"
    assert nobody.get(asked["link"]).status == 410
    assert nobody("POST", asked["link"], headers=form, raw=b"answer=deny").status == 410


def test_c6_a_link_whose_answer_could_not_be_saved_says_so(server: Server, project: Project, until: Any) -> None:
    execution = server.api.start(ASKS)["id"]
    (asked,) = until(lambda: server.api.get("/api/approvals").json)
    from_a_step = (
        "import sys, urllib.request, urllib.error\n"
        f"request = urllib.request.Request({server.address + asked['link']!r}, b'answer=allow')\n"
        f"request.add_header('Origin', {server.address!r})\n"
        "try:\n    urllib.request.urlopen(request)\n"
        "except urllib.error.HTTPError as error:\n    print(error.code, error.read().decode())\n"
    )
    project.file("answer.py", from_a_step)
    plan = {"name": "sly", "steps": [{"id": "a", "run": [sys.executable, "answer.py"]}]}
    said = json.dumps(server.api.start(plan, wait=60)["steps"][0]["output"])
    assert "403 " in said
    assert "<h1>Not answered</h1>" in said
    assert [one["execution"] for one in server.api.get("/api/approvals").json] == [execution]


def test_c6_a_link_of_a_removed_execution_is_a_page_that_names_no_other(server: Server, project: Project) -> None:
    other = server.api.start(ASKS)["id"]
    removed = HomeKey(project.home).approval_link("01a1f3c4-0000", "write", "digest", time.time() + 100)
    nobody = Api(server.address, "")
    form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": server.address}
    for page in (nobody.get(removed), nobody("POST", removed, headers=form, raw=b"answer=allow")):
        assert (page.status, page.headers["content-type"]) == (410, "text/html; charset=utf-8")
        assert "is no longer open" in page.body.decode()
        assert other not in page.body.decode()


def test_c6_a_forged_link_opens_nothing(server: Server, until: Any) -> None:
    server.api.start(ASKS)
    (asked,) = until(lambda: server.api.get("/api/approvals").json)
    nobody = Api(server.address, "")
    for wrong in (asked["link"][:-1], asked["link"].replace("step=write", "step=other"), "/approve", "/approve?key=x"):
        assert nobody.get(wrong).status == 403


def test_every_route_of_the_real_server_is_shut_without_the_token_for_other_pages_and_other_hosts(
    server: Server,
) -> None:
    described = server.api.get("/api/openapi.json")
    paths = (
        [path.replace("{", "").replace("}", "") for path in described.json["paths"]] if described.status == 200 else []
    )
    assert len(paths) > 10
    nobody = Api(server.address, "")
    for path in [*paths, "/", "/docs", "/api/openapi.json", "/metrics", "/mcp", "/api/stream"]:
        if path in ("/health", "/login", "/approve"):
            continue
        for method in ("GET", "POST"):
            assert nobody(method, path).status == 401, path
            assert server.api(method, path, headers={"Origin": "https://evil.example"}).status == 403, path
            assert server.api(method, path, headers={"Origin": "null"}).status == 403, path
            assert server.api(method, path, headers={"Host": "evil.example"}).status == 421, path


async def test_c6_every_surface_shows_the_difference_in_the_folder_of_the_agent_that_asks(
    server: Server, project: Project, windlass: Windlass
) -> None:
    project.file("NOTES.md", "of the project\n")
    project.file("sub/NOTES.md", "of the folder\n")
    turn = Turn().call("files.write", {"path": "NOTES.md", "content": "new\n"}).say("done")
    plan = Plan(steps=[Step(id="work", agent="developer", prompt="go", workdir="sub")])
    async with library.open(runners=[ScriptedRunner([turn], name="cli")]) as engine:
        state = await (await engine.start(plan, hold=False)).wait()
    assert state.paused_for == "approval", state.steps["work"].error
    (listed,) = server.api.get("/api/approvals").json
    (told,) = windlass("approvals", "--json").json
    step = server.api.get(f"/api/executions/{state.id}/steps/work").json
    page = Api(server.address, "").get(listed["link"]).body.decode()
    for shown in (listed["diff"], told["diff"], windlass("approvals").out, step["question"]["diff"], page):
        assert ("-of the folder\n+new" in shown, "of the project" in shown) == (True, False), shown
