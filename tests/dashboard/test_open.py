"""`windlass serve --open` gives the browser a page that logs it in, of a server that runs already as well (I4)."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect
from server_process import Api

if TYPE_CHECKING:
    from conftest import Project, Windlass
    from server_process import Serve, Server

session_loop = pytest.mark.asyncio(loop_scope="session")


def a_browser(project: Project) -> Path:
    """A program that notes what it is asked to open."""
    program = project.file("browser", '#!/bin/sh\necho "$1" >> "$0.asked"\n')
    program.chmod(0o700)
    project.env["BROWSER"] = str(program)
    return project.path / "browser.asked"


@session_loop
async def test_i4_serve_opens_a_page_that_is_logged_in(
    serve: Serve, windlass: Windlass, project: Project, new_context: Any, until: Any
) -> None:
    asked = a_browser(project)
    server = serve("--open")
    (first,) = until(lambda: asked.exists() and asked.read_text().split())
    page = await (await new_context()).new_page()
    await page.goto(first)
    await page.wait_for_url(f"{server.address}/")
    await expect(page.get_by_role("heading", name="Executions")).to_be_visible()
    assert first.startswith("file://"), "a command line can be read by everybody on the machine"
    kept = Path(first.removeprefix("file://"))
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600

    again = windlass("serve", "--open")
    assert again.code == 0, str(again)
    assert "opens in your browser" in again.err
    (_first, second) = until(lambda: len(lines := asked.read_text().split()) == 2 and lines)
    other = await (await new_context()).new_page()
    await other.goto(second)
    await other.wait_for_url(f"{server.address}/")
    server.stop()
    assert not kept.exists()


def test_i4_without_a_browser_the_link_is_told(serve: Serve, windlass: Windlass, project: Project) -> None:
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        project.env.pop(name, None)
    serve()
    told = windlass("serve", "--open")
    assert told.code == 0, str(told)
    assert "no browser with a window was found" in told.err
    assert f"open the link in {project.home / 'server.login'}" in told.err, "others can read what it writes here"
    assert re.fullmatch(r"http://\S+/login\?code=\S+\n", (project.home / "server.login").read_text())


def test_i4_a_login_link_is_given_for_the_token_alone(server: Server) -> None:
    link = server.api("POST", "/api/login-links").json["login"]
    nobody = Api(server.address, "")
    answer = nobody.get(link.removeprefix(server.address) + "&next=/approvals")
    cookie = answer.headers["set-cookie"].partition(";")[0]
    assert b"url=/approvals" in answer.body
    assert nobody("GET", "/api/executions", headers={"Cookie": cookie}).status == 200
    refused = nobody("POST", "/api/login-links", headers={"Cookie": cookie, "Origin": server.address})
    assert (refused.status, refused.headers["content-type"]) == (403, "application/problem+json")
    assert nobody("POST", "/api/login-links").status == 401


@pytest.mark.parametrize(
    "path", ["//evil.example", "/\\evil.example", "https://evil.example", "", "/a\r\nb", "javascript:1"]
)
def test_i4_a_login_leads_to_no_other_server(server: Server, path: str) -> None:
    from urllib.parse import quote

    link = server.api("POST", "/api/login-links").json["login"].removeprefix(server.address)
    assert b'content="0;url=/"' in Api(server.address, "").get(f"{link}&next={quote(path)}").body


def test_i4_servers_of_two_homes_keep_the_browser_logged_in_at_both(serve: Serve, project: Project) -> None:
    names = set()
    for home in (project.home, project.path / "other"):
        address = serve("--home", str(home)).address
        owner = Api(address, (home / "server.token").read_text().strip())
        link = owner("POST", "/api/login-links").json["login"].removeprefix(address)
        names.add(Api(address, "").get(link).headers["set-cookie"].partition("=")[0])
    assert len(names) == 2, "browsers keep cookies by host, whatever the port"
