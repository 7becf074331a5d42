"""Where `http.*` goes: to the address that was checked, hop by hop, under the right name (H2)."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from http_world import Web
from loopback import Names, reply, serve

from windlass.errors import Category

MakeWeb = Callable[..., Web]


async def test_h2_the_checked_address_is_the_connected_one_whatever_dns_says_next(make_web: MakeWeb) -> None:
    names = Names(turncoat_test=[["127.0.0.1"], ["127.0.0.2"]])
    async with (
        serve({"*": reply("good")}) as good,
        serve({"*": reply("inside")}, host="127.0.0.2", port=good.port) as inside,
    ):
        web = make_web(more={"resolve": names})
        found = await web.use("get", good.url(host="turncoat.test"))
        assert (found["text"], names.asked) == ("good", ["turncoat.test"]), (
            "asked once, for the check and the connection"
        )
        assert good.asked[0].headers["host"] == f"turncoat.test:{good.port}"
        again = await web.use("get", good.url(host="turncoat.test"))
        assert (again["text"], good.connections) == ("good", 1), "a kept connection leads where it led"
        await web.close()
        failure = await web.failure("get", good.url(host="turncoat.test"))
        assert (failure.category, failure.final) == (Category.PERMISSION, True)
        assert "Blocked: turncoat.test (127.0.0.2) is" in failure.message
        assert not inside.connections


async def test_h2_the_next_address_is_tried_when_the_first_does_not_answer(make_web: MakeWeb) -> None:
    async with serve({"*": reply("second")}) as server:
        web = make_web(("127.0.0.0/8",), more={"resolve": Names(two_test=[["127.0.0.9", "127.0.0.1"]])})
        assert (await web.use("get", server.url(host="two.test")))["text"] == "second"


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]"])
async def test_h2_loopback_is_refused_unless_opened(make_web: MakeWeb, address: str) -> None:
    async with serve({"*": reply("inside")}) as server:
        failure = await make_web(private=()).failure("get", server.url(host=address))
        assert failure.category is Category.PERMISSION
        assert "network.private" in failure.advice[0]
        assert not server.connections


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.2:{port}/",
        "//127.0.0.2:{port}/",
        "http://[::1]:{port}/",
        "http://localhost:{port}/",
        "http://inside.test:{port}/",
        "http://169.254.169.254/latest/meta-data/",
        "http://2130706434:{port}/",
        "http://0x7f000002:{port}/",
        "http://user:pass@127.0.0.1:{port}/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:{port}/",
        "javascript:alert(1)",
        "http://127.0.0.1:{port}\\@evil.test/",
        "https://",
        "http://[",
    ],
)
async def test_h2_a_redirect_goes_nowhere_that_the_request_could_not_go(make_web: MakeWeb, location: str) -> None:
    def lead(asked: Any) -> bytes:
        return reply(status=302, location=location.format(port=server.port))

    names = Names(inside_test=[["127.0.0.2"]], localhost=[["127.0.0.2"]])
    async with (
        serve({"/": lead}) as server,
        serve({"*": reply("inside")}, host="127.0.0.2", port=server.port) as inside,
    ):
        failure = await make_web(more={"resolve": names}).failure("get", server.url())
        assert failure.category in (Category.PERMISSION, Category.LOGIC, Category.TRANSIENT)
        assert not inside.connections
        assert len(server.asked) == 1


async def test_h2_redirects_are_followed_to_the_tenth_and_told(make_web: MakeWeb) -> None:
    def next_hop(asked: Any) -> bytes:
        number = int(asked.path[1:])
        return reply("done") if number == 0 else reply(status=307, location=f"/{number - 1}")

    async with serve({"*": next_hop}) as server:
        web = make_web()
        found = await web.use("get", server.url("/10"))
        assert (found["text"], found["url"], len(found["redirects"])) == ("done", server.url("/0"), 10)
        assert found["redirects"][0] == server.url("/10")
        failure = await web.failure("get", server.url("/11"))
        assert (failure.category, "more than 10 redirects" in failure.message) == (Category.LOGIC, True)


async def test_h2_a_redirect_loop_ends(web: Web) -> None:
    async with serve({"*": reply(status=302, location="/again")}) as server:
        assert "more than 10 redirects" in (await web.failure("get", server.url())).message
        assert len(server.asked) == 11


async def test_h2_a_redirect_that_is_not_to_be_followed_is_the_answer(web: Web) -> None:
    async with serve({"*": reply(status=302, location="/there")}) as server:
        found = await web.use("get", server.url(), follow=False, ok=[302])
        assert (found["status"], found["headers"]["location"]) == (302, "/there")


@pytest.mark.parametrize(
    ("status", "method", "asked"),
    [
        (301, "post", "GET"),
        (302, "post", "GET"),
        (303, "put", "GET"),
        (307, "post", "POST"),
        (308, "patch", "PATCH"),
        (301, "put", "PUT"),
        (303, "head", "HEAD"),
        (302, "head", "HEAD"),
    ],
)
async def test_h2_a_redirect_keeps_or_changes_the_method_as_browsers_do(
    web: Web, status: int, method: str, asked: str
) -> None:
    async with serve({"/": reply(status=status, location="/there"), "/there": reply("")}) as server:
        body = {} if method == "head" else {"text": "body"}
        await web.use(method, server.url(), **body)
        there = server.asked[-1]
        assert there.method == asked
        assert there.body == (b"" if asked in ("GET", "HEAD") else b"body")


async def test_h2_another_host_gets_no_secret_header_and_the_same_host_does(make_web: MakeWeb) -> None:
    secret = {"X-Api-Key": "key-1", "Cookie": "a=b", "Accept": "text/x"}
    names = Names(one_test=[["127.0.0.1"]], two_test=[["127.0.0.1"]])
    async with serve({"*": reply("there")}) as other:
        routes = {
            "/same": reply(status=307, location="/end"),
            "/other": reply(status=307, location=other.url("/end")),
            "/name": lambda _: reply(status=307, location=server.url("/end", "two.test")),
            "/end": reply("here"),
        }
        async with serve(routes) as server:
            web = make_web(("one.test", "two.test", "127.0.0.1"), more={"resolve": names})
            web.env["TOKEN"] = "bearer-secret"
            for path in ("/same", "/other", "/name"):
                await web.use("post", server.url(path, "one.test"), headers=secret, auth_env="TOKEN", text="x")
    same, name = [asked for asked in server.asked if asked.path == "/end"]
    assert (same.headers["authorization"], same.headers["x-api-key"]) == ("Bearer bearer-secret", "key-1")
    for elsewhere in (other.asked[0], name):
        assert not {"authorization", "x-api-key", "cookie", "idempotency-key"} & set(elsewhere.headers)
        assert elsewhere.headers["accept"] == "text/x"


async def test_h2_cookies_of_one_answer_are_not_sent_with_the_next_request(web: Web) -> None:
    async with serve({"*": reply("x", set_cookie="session=abc; Path=/")}) as server:
        for _ in range(2):
            found = await web.use("get", server.url())
        assert "cookie" not in server.asked[1].headers
        assert "set-cookie" not in found["headers"]


async def test_h2_proxies_and_netrc_of_the_environment_are_not_used(
    web: Web, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/")
    async with serve({"*": reply("direct")}) as server:
        assert (await web.use("get", server.url()))["text"] == "direct"
        assert "authorization" not in server.asked[0].headers


# ── secure connections ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of good.test, signed by itself."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate, and is not installed")
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    line = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=good.test"
    more = ["-addext", "subjectAltName=DNS:good.test", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*line.split(), *more], check=True, capture_output=True)
    return cert, key


@pytest.fixture
def server_side(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


async def test_h2_the_certificate_is_checked_for_the_name_while_the_checked_address_is_connected_to(
    make_web: MakeWeb, certificate: tuple[Path, Path], server_side: ssl.SSLContext
) -> None:
    names, shown = Names(good_test=[["127.0.0.1"]], evil_test=[["127.0.0.1"]]), []
    server_side.sni_callback = lambda _, name, __: shown.append(name)
    tls = ssl.create_default_context(cafile=str(certificate[0]))
    async with serve({"*": reply("secure")}, tls=server_side) as server:
        web = make_web(more={"resolve": names, "tls": tls})
        assert (await web.use("get", server.url(host="good.test")))["text"] == "secure"
        assert shown == ["good.test"]
        failure = await web.failure("get", server.url(host="evil.test"))
        assert failure.category is Category.CONFIGURATION
        assert "certificate is invalid" in failure.message
        unknown = await make_web(more={"resolve": names}).failure("get", server.url(host="good.test"))
        assert unknown.category is Category.CONFIGURATION
        assert len(server.asked) == 1


async def test_h2_tls_to_a_server_without_it_is_a_matter_of_configuration(web: Web) -> None:
    async with serve({}, greeting=b"220 mail.test ESMTP\r\n") as server:
        failure = await web.failure("get", server.url().replace("http:", "https:"))
        assert (failure.category, "no secure connection" in failure.message) == (Category.CONFIGURATION, True)


async def test_h2_from_https_to_http_goes_nothing_confidential(
    make_web: MakeWeb, certificate: tuple[Path, Path], server_side: ssl.SSLContext
) -> None:
    tls = ssl.create_default_context(cafile=str(certificate[0]))
    async with serve({"*": reply("in the open")}) as plain:
        async with serve({"*": reply(status=307, location=plain.url())}, tls=server_side) as server:
            web = make_web(more={"resolve": Names(good_test=[["127.0.0.1"]]), "tls": tls})
            web.env["TOKEN"] = "bearer-secret"
            url = server.url(host="good.test")
            for name, more in (
                ("get", {"auth_env": "TOKEN"}),
                ("get", {"headers": {"Cookie": "a"}}),
                ("put", {"text": "x"}),
            ):
                failure = await web.failure(name, url, **more)
                assert failure.category is Category.PERMISSION
                assert "from https to http" in failure.message
            assert not plain.asked
            assert (await web.use("get", url))["text"] == "in the open"
