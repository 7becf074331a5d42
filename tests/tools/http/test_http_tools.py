"""`http.*` as steps use it: what is sent, what comes back, how it fails, what recovery may repeat (H2, C3)."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
from collections import namedtuple
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from http_world import NOW, Web
from loopback import Asked, reply, serve

import windlass
from windlass import Effect, Plan, Step
from windlass.errors import Category, ToolError
from windlass.ports import health_of

if TYPE_CHECKING:
    from conftest import Project


def echo(asked: Asked) -> bytes:
    """The request, as JSON."""
    told = {
        "method": asked.method,
        "target": asked.target,
        "headers": asked.headers,
        "body": asked.body.decode("latin-1"),
    }
    return reply(json.dumps(told), content_type="application/json")


# ── what is sent ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "body", "kind"),
    [
        ({"json": {"a": [1, None]}}, '{"a":[1,null]}', "application/json"),
        ({"json": None}, "null", "application/json"),
        ({"text": "grüße"}, "grüße".encode().decode("latin-1"), "text/plain; charset=utf-8"),
        ({"form": {"a": "b c", "d": [1, True]}}, "a=b+c&d=1&d=true", "application/x-www-form-urlencoded"),
        ({"base64": base64.b64encode(b"\x00\xff").decode()}, "\x00\xff", "application/octet-stream"),
        ({}, "", None),
        ({"text": "<a/>", "headers": {"Content-Type": "text/xml"}}, "<a/>", "text/xml"),
    ],
)
@pytest.mark.parametrize("tool", ["post", "put", "patch", "delete"])
async def test_h2_a_body_is_sent_as_what_it_is(web: Web, tool: str, given: Any, body: str, kind: str | None) -> None:
    async with serve({"*": echo}) as server:
        told = (await web.use(tool, server.url(), **given))["json"]
    assert (told["method"], told["body"], told["headers"].get("content-type")) == (tool.upper(), body, kind)


async def test_h2_params_headers_and_who_asks(web: Web) -> None:
    async with serve({"*": echo}) as server:
        params = {"q": "a&b=c", "n": 1, "tag": ["x", "y"], "on": True}
        told = (await web.use("get", server.url("/p?z=0#part"), params=params, headers={"X-A": "1"}))["json"]
        assert told["target"] == "/p?z=0&q=a%26b%3Dc&n=1&tag=x&tag=y&on=true"
        assert told["headers"]["x-a"] == "1"
        assert told["headers"]["user-agent"] == f"windlass/{windlass.__version__}"
        assert "idempotency-key" not in told["headers"]


async def test_h2_a_post_can_be_recognised_when_it_is_repeated(web: Web) -> None:
    async with serve({"*": echo}) as server:
        for _ in range(2):
            told = (await web.use("post", server.url(), json={}))["json"]
            assert told["headers"]["idempotency-key"] == "e-1:a"
        own = (await web.use("post", server.url(), headers={"Idempotency-Key": "mine"}))["json"]
        assert own["headers"]["idempotency-key"] == "mine"
        assert server.connections == 1, "the connection is used again"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"url": "ftp://example.com/"}, "only http and https"),
        ({"url": "http://u:p@example.com/"}, "user or a password"),
        ({"json": 1, "text": "x"}, "one body"),
        ({"headers": {"Host": "evil.test"}}, "cannot be given"),
        ({"headers": {"Transfer-Encoding": "chunked"}}, "cannot be given"),
        ({"headers": {"content-length": "5"}}, "cannot be given"),
        ({"headers": {"X-A": "b\r\nX-C: d"}}, "no header has"),
        ({"headers": {"X A": "b"}}, "not the name of a header"),
        ({"headers": {"X-A\r\nB": "b"}}, "not the name of a header"),
        ({"headers": {"X-A": "1", "x-a": "2"}}, "twice"),
        ({"headers": {"X-A": "é"}}, "no header has"),
        ({"timeout": "1h"}, "at most 10m"),
        ({"max_bytes": "65mb"}, "at most 64mb"),
        ({"ok": []}, "at least 1 item"),
        ({"ok": [42]}, "greater than or equal to 100"),
        ({"bdy": "x"}, "not an argument"),
    ],
)
def test_h2_arguments_that_make_no_sense_are_told_before_anything_is_sent(web: Web, given: Any, why: str) -> None:
    (complaint,) = web.tools["http.post"].validate({"url": "http://example.com/", **given})
    assert why in complaint


async def test_h2_a_token_comes_from_the_environment_that_steps_see_and_from_nowhere_else(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIDDEN_TOKEN", "not for steps")
    async with serve({"*": echo}) as server:
        web.env["API_TOKEN"] = "tok-123456789\n"
        told = await web.use("get", server.url(), auth_env="API_TOKEN")
        assert server.asked[0].headers["authorization"] == "Bearer tok-123456789"
        assert "tok-123456789" not in json.dumps(told), "an answer that repeats it is blotted"
        assert told["json"]["headers"]["authorization"] == "[secret]"
        failure = await web.failure("get", server.url(), auth_env="HIDDEN_TOKEN")
        assert failure.category is Category.CONFIGURATION
        assert "env_allow" in failure.advice[0]
        assert "not for steps" not in str(failure)
        web.env["API_TOKEN"] = "a\r\nX-Evil: b"
        assert (await web.failure("get", server.url(), auth_env="API_TOKEN")).category is Category.CONFIGURATION
        assert len(server.asked) == 1


async def test_h2_credentials_are_in_no_result_and_no_error(web: Web) -> None:
    def leak(asked: Asked) -> bytes:
        said = f"{asked.headers.get('authorization')} {asked.headers.get('cookie')}"
        return reply(said, 500, www_authenticate=said, x_request_id=said, set_cookie="sid=server-secret")

    headers = {"Authorization": "Basic dXNlcjpwYXNzd29yZA==", "Cookie": "sid=client-secret"}
    async with serve({"*": leak}) as server:
        with pytest.raises(ToolError) as caught:
            await web.use("get", server.url(), headers=headers)
        told = f"{caught.value.failure} {caught.value.output}"
        for secret in ("dXNlcjpwYXNzd29yZA", "client-secret", "server-secret"):
            assert secret not in told


# ── what comes back ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        (b'{"a": 1}', "application/json", {"json": {"a": 1}}),
        (b"\xef\xbb\xbf[1]", "application/problem+json; charset=utf-8", {"json": [1]}),
        (b"null", "application/json", {"json": None}),
        (b"123456789012345678901234567890", "application/json", {"json": 123456789012345678901234567890}),
        (b'{"a": 1}', "text/html", {"text": '{"a": 1}'}),
        ("grüße".encode("latin-1"), "text/plain; charset=ISO-8859-1", {"text": "grüße"}),
        ("日本".encode("shift_jis"), 'text/html; charset="Shift_JIS"', {"text": "日本"}),
        (b"\xff\xfe", "text/plain", {"text": "\ufffd\ufffd"}),
        (b"\x89PNG\xff", "image/png", {"base64": base64.b64encode(b"\x89PNG\xff").decode()}),
        (b"plain", "", {"text": "plain"}),
        (b"\xff\x00", "", {"base64": "/wA="}),
        (b"", "", {"text": ""}),
    ],
)
async def test_h2_a_body_comes_back_as_what_it_is(web: Web, body: bytes, kind: str, expected: Any) -> None:
    async with serve({"*": reply(body, content_type=kind)}) as server:
        found = await web.use("get", server.url())
        forms = {name: found[name] for name in ("json", "text", "base64") if name in found}
        assert forms == expected
        assert (found["bytes"], found["truncated"], found["redirects"]) == (len(body), False, [])
        as_bytes = await web.use("get", server.url(), encoding="base64")
        assert base64.b64decode(as_bytes["base64"]) == body


async def test_h2_an_encoding_that_is_asked_for_is_used(web: Web) -> None:
    async with serve({"*": reply("привет".encode("koi8-r"), content_type="text/plain")}) as server:
        assert (await web.use("get", server.url(), encoding="koi8-r"))["text"] == "привет"


@pytest.mark.parametrize("name", ["utf8x", "rot13", "zip", "unicode_escape", ""])
async def test_h2_an_encoding_that_is_none_is_refused(web: Web, name: str) -> None:
    (complaint,) = web.tools["http.get"].validate({"url": "http://example.com/", "encoding": name})
    assert "is not a text encoding that is known here" in complaint


async def test_h2_a_text_that_is_cut_says_so_and_stays_text(web: Web) -> None:
    async with serve({"*": reply("ü" * 100)}) as server:
        found = await web.use("get", server.url(), max_bytes=5)
        assert (found["text"], found["bytes"], found["truncated"]) == ("üü", 5, True)


async def test_h2_head_brings_headers_and_only_those_of_use(web: Web) -> None:
    headers = {"etag": '"1"', "content_type": "text/plain", "server": "x", "x_secret": "y", "content_length": "42"}
    async with serve({"*": reply(**headers)}) as server:
        found = await web.use("head", server.url())
        assert found["headers"] == {"etag": '"1"', "content-type": "text/plain", "content-length": "42"}


# ── how it fails ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("status", "category"),
    [
        *((status, "logic") for status in (302, 304, 400, 404, 410, 418, 422)),
        *((status, "permission") for status in (401, 403, 407)),
        *((status, "transient") for status in (408, 429, 500, 502, 503, 504)),
    ],
)
async def test_c3_a_status_says_whether_to_try_again(web: Web, status: int, category: str) -> None:
    async with serve({"*": reply("" if status == 304 else "because I say so", status)}) as server:
        with pytest.raises(ToolError) as caught:
            await web.use("get", server.url("/x?key=hidden"))
        assert caught.value.failure.category == category
        assert f"/x?…: status {status}" in caught.value.failure.message
        assert "hidden" not in caught.value.failure.message
        assert caught.value.output["status"] == status
        found = await web.use("get", server.url(), ok=[200, status])
        assert found["status"] == status


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        ("7", 7.0),
        (formatdate(NOW + 90, usegmt=True), 90.0),
        (formatdate(NOW - 90, usegmt=True), 0.0),
        ("99999999999999999999", 86400.0),
        ("soon", None),
        ("-5", None),
        ("", None),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_c3_retry_after_is_kept_to(web: Web, status: int, header: str, wait: float | None) -> None:
    async with serve({"*": reply("", status, retry_after=header)}) as server:
        assert (await web.failure("post", server.url())).retry_after == wait


def test_c4_a_host_that_is_down_says_nothing_about_the_others(web: Web) -> None:
    for tool in web.tools.values():
        assert tool.circuit({"url": "https://Example.com./a"}) == "http:example.com:443"
        assert tool.circuit({"url": "http://example.com:8080"}) == "http:example.com:8080"


async def test_h1_effects_health_and_results_are_declared(web: Web) -> None:
    effects = {name.removeprefix("http."): tool.effect({"url": "http://a.test/"}) for name, tool in web.tools.items()}
    assert effects == {
        "get": Effect.NONE,
        "head": Effect.NONE,
        "download": Effect.REPEATABLE,
        "put": Effect.REPEATABLE,
        "delete": Effect.REPEATABLE,
        "post": Effect.ONCE,
        "patch": Effect.ONCE,
    }
    for tool in web.tools.values():
        assert (await health_of(tool)).ok
        assert "status" in tool.returns["properties"]  # type: ignore[attr-defined]


# ── downloads ────────────────────────────────────────────────────────────────────────────────────────

DATA = os.urandom(300_000)
SHA = hashlib.sha256(DATA).hexdigest()


async def test_h2_a_download_goes_to_a_path_at_one_stroke(web: Web) -> None:
    async with serve({"*": reply(DATA, content_type="application/zip")}) as server:
        found = await web.use("download", server.url("/x.zip"), path="new/deep/x.zip", sha256=SHA.upper())
        assert (found["path"], found["bytes"], found["sha256"]) == ("new/deep/x.zip", len(DATA), SHA)
        assert (found["artifact"], found["headers"]["content-type"]) == (False, "application/zip")
        file = web.folder / "work" / "new" / "deep" / "x.zip"
        assert file.read_bytes() == DATA
        assert [*file.parent.iterdir()] == [file]
        file.write_text("old")
        file.chmod(0o640)
        kept = await web.failure("download", server.url(), path="new/deep/x.zip", overwrite=False)
        assert (kept.category, file.read_text()) == (Category.CONFIGURATION, "old")
        wrong = await web.failure("download", server.url(), path="new/deep/x.zip", sha256="0" * 64)
        assert (wrong.category, file.read_text()) == (Category.LOGIC, "old")
        await web.use("download", server.url(), path="new/deep/x.zip")
        assert (file.read_bytes(), file.stat().st_mode & 0o777) == (DATA, 0o640)
        assert server.asked[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    "path", ["../x", "/etc/x", "link/x", ".windlass/x", "a/../../x", "dir", "", "a\0b", "file/x", "state"]
)
async def test_h2_no_download_leaves_the_working_directory(web: Web, path: str) -> None:
    work = web.folder / "work"
    (web.folder / "outside").mkdir()
    work.mkdir()
    (work / "dir").mkdir()
    (work / "file").write_text("kept")
    (work / "link").symlink_to(web.folder / "outside")
    (web.folder / "home").mkdir()
    (web.folder / "home/windlass.db").write_text("kept")
    (work / "state").hardlink_to(web.folder / "home/windlass.db")
    async with serve({"*": reply(DATA)}) as server:
        await web.failure("download", server.url(), path=path)
    assert sorted(path.name for path in work.rglob("*")) == ["dir", "file", "link", "state"]
    assert (work / "state").read_text() == "kept"
    assert not [*(web.folder / "outside").iterdir()]
    assert not (web.folder / "x").exists()


@pytest.mark.parametrize(
    ("path", "name", "expected"),
    [
        ("/a/report.pdf?x=1", None, "report.pdf"),
        ("/", None, "download"),
        ("/..%2f..%2fetc%2fpasswd", None, "etc-passwd"),
        ("/.hidden", None, "hidden"),
        ("/x", "../../my file.txt", "my-file.txt"),
        ("/" + "a" * 300, None, "a" * 100),
    ],
)
async def test_h2_an_artifact_has_a_safe_name_in_a_folder_of_its_own(
    web: Web, path: str, name: str | None, expected: str
) -> None:
    async with serve({"*": reply(DATA)}) as server:
        given = {"name": name} if name is not None else {}
        found = await web.use("download", server.url(path), **given)
        file = web.folder / "home" / "artifacts" / "e-1" / "a" / expected
        assert (found["path"], found["artifact"]) == (str(file), True)
        assert file.read_bytes() == DATA
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


async def test_h2_a_download_leaves_room_on_the_disk(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, 64 * 1024 * 1024 + len(DATA) - 1))
    async with serve({"*": reply(DATA)}) as server:
        failure = await web.failure("download", server.url())
        assert (failure.category, "64 MiB free" in failure.message) == (Category.RESOURCE, True)


async def test_h2_what_a_killed_attempt_left_behind_is_cleared_by_the_next(web: Web) -> None:
    async with serve({"*": reply(DATA)}) as server:
        mine = hashlib.sha256(b"e-1:a").hexdigest()[:12]
        (web.folder / "work").mkdir()
        (web.folder / "work" / f".windlass-{mine}.part").write_text("half")
        await web.use("download", server.url(), path="x")
        assert [path.name for path in (web.folder / "work").iterdir()] == ["x"]


async def test_h2_a_download_that_is_refused_leaves_nothing(web: Web) -> None:
    async with serve({"*": reply("no", 404)}) as server:
        assert (await web.failure("download", server.url(), path="x")).category is Category.LOGIC
        assert not [*(web.folder / "work").iterdir()]


# ── in an engine ─────────────────────────────────────────────────────────────────────────────────────


async def test_h2_a_step_asks_an_api_and_is_tried_again_when_it_hiccups(project: Project) -> None:
    def hiccup(asked: Asked) -> bytes:
        return reply("wait", 503, retry_after="0") if len(server.asked) == 1 else echo(asked)

    async with serve({"*": hiccup}) as server:
        project.user_file("config.toml", '[network]\nprivate = ["127.0.0.1"]\n')
        steps = [
            Step(id="ask", tool="http.post", with_={"url": server.url("/a"), "json": {"n": 1}}),
            Step(id="keep", tool="http.download", with_={"url": server.url("/b"), "path": "b.json"}, needs=["ask"]),
        ]
        async with windlass.open(grace=0.2) as engine:
            execution = await engine.start(Plan(steps=steps))
            first, second = (await execution.result())["steps"]
    assert (first["status"], first["attempts"]) == ("completed", 2)
    assert first["output"]["json"]["headers"]["idempotency-key"] == f"{execution.id}:ask"
    assert server.asked[0].headers["idempotency-key"] == server.asked[1].headers["idempotency-key"]
    assert Path(project.path / second["output"]["path"]).exists()
