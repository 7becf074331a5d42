"""A5: images and PDF documents reach the model: on the model API and through the real OpenCode."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from agent_project import serving
from hosts import FakeHost
from model_api_world import PROTOCOLS, World, scripted
from opencode_fixtures import SEEING, Bench, needs_opencode

from windlass.ports import AgentRequest, PromptAttachment
from windlass.runners.model_api.conversation import Conversation
from windlass.runners.opencode.probe import Contract
from windlass.testing import Reply

if TYPE_CHECKING:
    from conftest import Project, Windlass

PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=")
IMAGE = PromptAttachment("shots/a.png", "image/png", PIXEL)
DOCUMENT = PromptAttachment("spec.pdf", "application/pdf", b"%PDF-1.4\n%%EOF\n")


def encoded(attachment: PromptAttachment) -> str:
    return base64.b64encode(attachment.data).decode()


def with_files(request: AgentRequest, *attachments: PromptAttachment) -> AgentRequest:
    return replace(request, brief=replace(request.brief, attachments=attachments))


async def ask(world: World, *attachments: PromptAttachment, session: str | None = None) -> str | None:
    request = with_files(world.request("look at it", session=session, nudge=False), *attachments)
    return (await world.runner().run(request, FakeHost())).session


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a5_a_model_gets_the_image_and_the_document_beside_the_prompt(tmp_path: Path, protocol: str) -> None:
    async with scripted(protocol, tmp_path, [Reply.say("a red dot"), Reply.say("still red")]) as (world, model):
        session = await ask(world, IMAGE, DOCUMENT)
        await world.run(prompt="and now?", session=session, nudge=False)
        model.check()
    for request in model.requests:  # the conversation keeps them, read from its file the second time
        (said, *_) = request.messages
        kinds = [part["type"] for part in said["content"]]
        assert kinds == (["text", "image", "document"] if protocol == "anthropic" else ["text", "image_url", "file"])
        assert encoded(IMAGE) in json.dumps(said)
        assert encoded(DOCUMENT) in json.dumps(said)


async def test_a5_the_same_prompt_after_a_failure_has_its_image_once(tmp_path: Path) -> None:
    script = [Reply.error(400, "try later"), Reply.say("a red dot")]
    async with scripted("anthropic", tmp_path, script) as (world, model):
        session = await ask(world, IMAGE)
        await ask(world, IMAGE, session=session)
        model.check()
    assert json.dumps(model.requests[-1].messages).count(encoded(IMAGE)) == 1


def test_a5_an_image_counts_as_its_tokens_and_not_as_its_bytes(tmp_path: Path) -> None:
    conversation = Conversation.new(tmp_path)
    conversation.prompt("look at it", "", [PromptAttachment("big.png", "image/png", PIXEL + bytes(4_000_000))])
    assert 6_000 < conversation.size < 8_000
    conversation.keep_now()
    assert Conversation.load(tmp_path, conversation.session).size == conversation.size


@pytest.mark.parametrize(("protocol", "media"), [("anthropic", "attached"), ("openai", "")])
async def test_a5_a_model_on_a_server_of_the_users_own_is_given_none(tmp_path: Path, protocol: str, media: str) -> None:
    async with scripted(protocol, tmp_path, []) as (world, _model):
        assert world.runner().media(None) == media


def test_a5_an_image_among_the_files_of_a_step_is_in_the_request(project: Project, windlass: Windlass) -> None:
    (project.path / "shot.png").write_bytes(PIXEL)
    project.file(
        "plan.yaml", "steps: [{id: look, agent: developer, runtime: cli, prompt: Describe it, files: [shot.png]}]"
    )
    with serving(project, [Reply.say("a red dot")]) as model:
        ran = windlass("run", "plan.yaml", "--yes", "--json")
    assert ran.json["steps"][0]["output"] == "a red dot"
    (said,) = model.requests[0].messages
    assert "a PNG image of 68 bytes: attached to this message" in json.dumps(said)
    assert encoded(IMAGE) in json.dumps(said)


@needs_opencode
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("contract", ["serve", pytest.param("run", marks=pytest.mark.soak)])
async def test_a5_opencode_shows_the_image_to_a_model_that_takes_it(bench: Bench, contract: Contract) -> None:
    runner = bench.runner if contract == "serve" else bench.another_runner(contract=contract)
    async with bench.model(Reply.say("a red dot")) as model:
        result = await runner.run(with_files(bench.request("look at it", model=SEEING), IMAGE), FakeHost())
        model.check()
    assert result.output == "a red dot", result
    assert encoded(IMAGE) in json.dumps(model.requests[0].messages)


@needs_opencode
@pytest.mark.asyncio(loop_scope="session")
async def test_a5_opencode_tells_a_model_that_takes_no_images(bench: Bench) -> None:
    async with bench.model(Reply.say("I cannot see it")) as model:
        result = await bench.runner.run(with_files(bench.request("look at it"), IMAGE), FakeHost())
        model.check()
    assert result.success, result
    assert encoded(IMAGE) not in json.dumps(model.requests[0].messages)
    assert "does not support image input" in json.dumps(model.requests[0].messages)


@needs_opencode
@pytest.mark.asyncio(loop_scope="session")
async def test_a3_an_image_that_opencode_reads_is_named_in_the_transcript(bench: Bench) -> None:
    folder, host = bench.folder(), FakeHost()
    (folder / "shot.png").write_bytes(PIXEL)
    read = Reply.use("read", {"filePath": str(folder / "shot.png")})
    async with bench.model(read, Reply.say("a red dot")) as model:
        result = await bench.runner.run(bench.request("look at it", workdir=folder, model=SEEING), host)
        model.check()
    assert result.success, result
    (returned,) = host.returns
    assert returned.text.splitlines()[-1] == "[image/png]"
