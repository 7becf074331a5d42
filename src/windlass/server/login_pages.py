"""Pages for people: the login link, and the link of one approval. Plain HTML, no script, everything escaped."""

from __future__ import annotations

import html
import json
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from windlass.engine.engine import Engine
from windlass.engine.preview import asked_change, rests_on
from windlass.errors import NotFound, WindlassError
from windlass.redact import Redactor
from windlass.server.access import SESSION_LIFE, Access
from windlass.server.guard import LOG_IN, PAGE_STYLE
from windlass.server.problems import NotNow, not_now, of_error, problem
from windlass.visible import visible

__all__ = ["approval_pages", "login_routes"]

_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "form-action 'self'; frame-ancestors 'none'",
    # With `no-referrer`, browsers would send `Origin: null` with the form, and be refused.
    "referrer-policy": "same-origin",
}
_CLOSED = "<p>This question was answered already, or is no longer open.</p>"


def login_routes(access: Access) -> list[Route]:
    """Make the routes of the login link: using one, and asking for one."""

    async def login(request: Request) -> Response:
        if request.method != "GET" or "prefetch" in request.headers.get("sec-purpose", ""):
            # A look at the link (HEAD, a browser that fetches ahead) must not use the code up.
            return _page("Log in", "<p>Open this link in a browser.</p>", 405)
        session = access.redeem(request.query_params.get("code", ""))
        if session is None:
            text = "This login link was used or has expired. Get a new one: windlass serve"
            return _page("Not allowed", f"<p>{text}</p>", 403)
        path = html.escape(own_path(request.query_params.get("next", "")))
        answer = _page("Logged in", f'<p>You are logged in. <a href="{path}">Continue</a>.</p>', refresh=path)
        secure = request.url.scheme == "https"
        answer.set_cookie(
            access.cookie, session, max_age=int(SESSION_LIFE), httponly=True, samesite="strict", secure=secure, path="/"
        )
        return answer

    async def login_link(request: Request) -> Response:
        """A session cannot make others: it ends when its time is over."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not access.has_token(token.strip()):
            return problem(403, "no token", "a login link is given for the token alone", advice=(LOG_IN,))
        base = f"{request.url.scheme}://{request.headers['host']}"
        return JSONResponse({"login": f"{base}/login?code={access.login_code()}"}, 200, {"cache-control": "no-store"})

    return [Route("/login", login, methods=["GET"]), Route("/api/login-links", login_link, methods=["POST"])]


def approval_pages(engine: Engine, access: Access, redactor: Redactor) -> list[Route]:
    """Make the routes of the link of one approval."""

    async def ask(request: Request) -> Response:
        told = _told(request, access)
        if told is None:
            return _page("Not allowed", "<p>This link is not valid or has expired.</p>", 403)
        execution, step, digest, _ = told
        asked = None
        try:
            state = await engine.state(execution)
        except NotFound:  # it was removed; its error names others, which the link is not for
            return _page("Answered", _CLOSED, 410)
        if step in state.questions:
            asked = state.questions[step].approval
        if asked is None or asked.digest != digest or asked.allow is not None:
            return _page("Answered", _CLOSED, 410)
        exactly = html.escape(json.dumps(asked.input, indent=2, ensure_ascii=False))
        diff = asked_change(asked, state.workdir)
        change = f"<p>which changes:</p><pre>{html.escape(diff)}</pre>" if diff else ""
        if about := rests_on(asked.basis):
            change += f"<p>with: {html.escape(about)}</p>"
        if hidden := redactor.found(exactly + change):
            names = html.escape(", ".join(hidden))
            change += f"<p>Not shown, because they are secrets: {names}. The step gets their values.</p>"
        if asked.question:
            change += f"<p>{html.escape(asked.question)}</p>"
        body = (
            f"<p>Step <b>{html.escape(step)}</b> of <b>{html.escape(state.plan.name)}</b> "
            f"asks to use <b>{html.escape(asked.tool)}</b> with exactly:</p><pre>{exactly}</pre>{change}"
            '<form method="post"><p><label>Note <input name="note" maxlength="500"></label></p>'
            '<button name="answer" value="allow">Allow</button> <button name="answer" value="deny">Deny</button></form>'
        )
        return _page("Approve?", body)

    async def answer(request: Request) -> Response:
        told = _told(request, access)
        if told is None:
            return _page("Not allowed", "<p>This link is not valid or has expired.</p>", 403)
        execution, step, digest, sent_to = told
        form = parse_qs((await request.body()).decode("utf-8", "replace"))
        word, note = form.get("answer", [""])[0], form.get("note", [""])[0][:500]
        if word not in ("allow", "deny"):
            return _page("Bad answer", "<p>Answer allow or deny.</p>", 400)
        try:
            by = f"link sent to {sent_to}" if sent_to else "link"
            with not_now():
                await engine.approve(execution, step, allow=word == "allow", by=by, note=note, digest=digest)
        except NotFound:
            return _page("Answered", _CLOSED, 410)
        except NotNow as error:
            return _page("Answered", f"<p>{html.escape(error.message)}</p>", 410)
        except WindlassError as error:
            text = f"<p>Your answer was not saved: {html.escape(error.message)}</p>"
            return _page("Not answered", text, of_error(error).status_code)
        return _page("Thank you", f"<p>Your answer was saved: {word}.</p>")

    return [
        Route("/approve", ask, methods=["GET"]),
        Route("/approve", answer, methods=["POST"]),
    ]


def own_path(path: str) -> str:
    """The path, if it is one of this server; else its first page. A browser reads `//` and `/\\` as another server."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() else "/"


def _told(request: Request, access: Access) -> tuple[str, str, str, str] | None:
    """The execution, step, digest and addressee of a link that we signed and that has not expired."""
    names = ("execution", "step", "digest", "until", "key", "to")
    execution, step, digest, until, key, sent_to = (request.query_params.get(name, "") for name in names)
    signed = access.may_answer(execution, step, digest, until, key, sent_to)
    return (execution, step, digest, sent_to) if signed else None


def _page(title: str, body: str, status: int = 200, refresh: str = "") -> HTMLResponse:
    again = f'<meta http-equiv="refresh" content="0;url={refresh}">' if refresh else ""
    head = f"<!doctype html><meta charset=utf-8><title>{title} · Windlass</title>{again}<style>{PAGE_STYLE}</style>"
    return HTMLResponse(visible(f"{head}<h1>{title}</h1>{body}"), status, _HEADERS)
