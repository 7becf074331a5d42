"""`windlass tools`: seeing, saving, running and deleting tools (G3, I1)."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Project, Windlass

COUNT = """\
// tools.shell({line: "in a comment, this is no call"})
const texts = await Promise.all(args.paths.map(path => tools.files.read({path})));
console.log(`read ${texts.length}`);
return texts.map(text => text.content.split(/\\s+/).filter(Boolean).length);
"""
SCHEMA = {
    "type": "object",
    "properties": {"paths": {"type": "array", "items": {"type": "string"}}},
    "required": ["paths"],
    "additionalProperties": False,
}
QUIET = ("--progress", "quiet")


@pytest.fixture
def count(project: Project, windlass: Windlass) -> str:
    """A composed tool that was saved."""
    project.file("count.js", COUNT)
    project.file("count.json", json.dumps(SCHEMA))
    words = ("--schema", "count.json", "--description", "Count words\nin files", "--grants", "files.read")
    ran = windlass("tools", "save", "count_words", "count.js", *words)
    assert "warning" not in ran.err
    return "count_words"


def in_one_line(text: str) -> str:
    """However wide its columns are."""
    return " ".join(text.split())


def test_g3_tools_are_listed_by_kind_with_effect_and_a_line_about_them(project: Project, windlass: Windlass) -> None:
    ran = windlass("tools")
    assert "files.read none Read a text file" in in_one_line(ran.out)
    assert "shell repeatable Run a command" in in_one_line(ran.out)
    assert "Composed: none yet" in ran.out
    told = {tool["name"]: tool for tool in windlass("tools", "--json").json}
    assert {"agent", "code", "code.search", "files.apply", "shell"} <= set(told)
    assert {tool["kind"] for tool in told.values()} == {"built-in"}
    assert told["files.read"]["returns"]["type"] == "object"
    assert not project.home.exists(), "looking makes no home"


def test_g3_a_saved_tool_is_listed_shown_run_counted_and_deleted(
    project: Project, windlass: Windlass, count: str
) -> None:
    project.file("a.txt", "one two three\n")
    ran = windlass("tools", "run", count, "--with", '{"paths": ["a.txt"]}', *QUIET)
    assert ran.out == "[3]\n", "the result and nothing else"
    assert "count_words  completed" in ran.err
    listed = windlass("tools")
    assert "count_words repeatable Count words in files" in in_one_line(listed.out)
    assert "may call files.read; used 1 time, last 20" in listed.out
    shown = windlass("tools", "show", count).out
    assert "kept in .windlass/composed-tools/count_words.js, for this project" in shown
    assert "count_words: (args: { paths: string[] }) => Promise<any>;" in shown
    assert shown.endswith(COUNT)
    told = windlass("tools", "show", count, "--json").json
    assert (told["source"], told["schema"], told["grants"], told["scope"]) == (COUNT, SCHEMA, ["files.read"], "project")
    assert told["uses"]["times"] == 1
    assert told["file"] == str(project.home / "composed-tools" / "count_words.js")
    assert windlass("tools", "delete", count, "--yes", "--json").json == {"deleted": count}
    assert "Composed: none yet" in windlass("tools").out
    assert not list((project.home / "composed-tools").glob("count*"))


def test_g3_a_run_is_an_execution_of_one_step_with_the_exit_code_of_run(
    project: Project, windlass: Windlass, count: str
) -> None:
    project.file("deep/a.txt", "one two")
    told = windlass("tools", "run", count, "--with", '{"paths": ["a.txt"]}', "-C", "deep", "--json", *QUIET).json
    assert (told["status"], told["plan"], told["steps"][0]["output"]) == ("completed", count, [2])
    assert project.ids() == [told["id"]]
    assert f"{told['id']}" in windlass("list").out
    assert "read 1" in windlass("logs", told["id"]).out
    failed = windlass("tools", "run", count, "--with", '{"paths": ["nope"]}', *QUIET, code=1)
    assert failed.out == ""
    assert "does not exist" in failed.err
    (tool,) = [tool for tool in windlass("tools", "--json").json if tool["name"] == count]
    assert (tool["uses"]["times"], tool["uses"]["failed"]) == (2, 1)


def test_g3_every_tool_can_be_run_and_its_arguments_are_no_templates(project: Project, windlass: Windlass) -> None:
    page = {"path": "page.html", "content": '<p>{{ user }} "{% x %}"</p>\n'}
    project.file("with.json", json.dumps(page))
    windlass("tools", "run", "files.write", "--with", "@with.json", *QUIET)
    assert (project.path / "page.html").read_text() == page["content"]
    read = windlass("tools", "run", "files.read", "--with", '{"path": "page.html"}', *QUIET)
    assert json.loads(read.out)["content"] == page["content"]
    assert windlass("tools", "run", "shell", "--with", '{"line": "echo hi"}', *QUIET).out == "hi\n"
    assert windlass("tools", "run", "code", "--with", '{"source": "return `${1 + 1}`"}', *QUIET).out == "2\n"


def test_c6_a_run_asks_in_a_terminal_and_pauses_without_one(project: Project, windlass: Windlass) -> None:
    project.file(".windlass/config.toml", '[approvals]\nalways = ["files.delete"]\n')
    project.file("old", "x")
    project.file("drop.js", "await tools.files.delete({path: args.path}); return 'gone'")
    windlass("tools", "save", "drop", "drop.js", "--grants", "files.delete")
    gone = ("tools", "run", "drop", "--with", '{"path": "old"}')
    paused = windlass(*gone, *QUIET, code=3)
    assert "windlass approve" in paused.err
    assert (project.path / "old").exists()
    terminal = windlass.terminal(*gone)
    terminal.expect("Allow it?")
    terminal.type("y\n")
    ended = terminal.ended()
    assert (ended.code, ended.out) == (0, "gone\n")
    assert not (project.path / "old").exists()


def test_g1_an_interrupted_run_is_resumed_where_it_was(project: Project, windlass: Windlass, until: Any) -> None:
    gate = "echo began >> log; until [ -e open ]; do sleep 0.02; done"
    project.file("slow.js", f"await tools.shell({{line: 'echo once >> log'}}); await tools.shell({{line: '{gate}'}})")
    windlass("tools", "save", "slow", "slow.js", "--grants", "shell")
    running = windlass.background("tools", "run", "slow", *QUIET)
    until(lambda: "began" in project.lines("log"), "the second call runs")
    running.signal(signal.SIGINT)
    stopped = running.ended()
    assert stopped.code == 130
    project.file("open", "")
    windlass.shell(stopped.command("resume"))
    assert project.lines("log").count("once") == 1, "what was done is not done again"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "nosuch"], "there is no tool named 'nosuch'"),
        (["run", "files.raed"], "did you mean 'files.read'?"),
        (["run", "files.read", "--with", '{"pat": "x"}'], "windlass tools show files.read"),
        (["run", "files.read", "--with", "{"], "--with is not JSON"),
        (["run", "files.read", "--with", "[1]"], "--with is not a JSON object"),
        (["run", "files.read", "--with", '{"path": NaN}'], "NaN is not a JSON number"),
        (["run", "files.read", "--with", '{"path":' * 10_000], "is not JSON: it is nested too deep"),
        (["run", "files.read", "--with", "@nope.json"], "nope.json cannot be read"),
        (["run", "files.read", "--with", '{"path": "x"}', "-C", "nope"], "does not exist"),
        (["run", "agent", "--with", '{"prompt": "x"}'], "windlass run --task TEXT"),
        (["show", "nosuch"], "there is no tool named 'nosuch'"),
        (["types", "zeppelin"], "no tool matches 'zeppelin'"),
        (["delete", "nosuch", "--yes"], "there is no composed tool 'nosuch'"),
        (["delete", "shell", "--yes"], "not a composed tool"),
        (["save", "Bad", "good.js"], "cannot be the name of a composed tool"),
        (["save", "files.mine", "good.js"], "choose another first word"),
        (["save", "shell", "good.js"], "a tool of that name already exists"),
        (["save", "fine", "nope.js"], "nope.js cannot be read"),
        (["save", "fine", "latin.js"], "is not UTF-8 text"),
        (["save", "fine", "empty.js"], "its source is empty"),
        (["save", "fine", "good.js", "--schema", "good.js"], "good.js is not JSON"),
        (["save", "fine", "good.js", "--schema", "list.json"], "arguments have names"),
        (["save", "fine", "good.js", "--grants", "a b"], "is not the name of a tool"),
        (["save", "fine", "good.js", "--returns", "nope.json"], "nope.json cannot be read"),
        (["save", "fine", "-", "--schema", "-"], "only one of them can be read from stdin"),
        (["save", "fine", "bad.js"], "bad.js, line 2, column 12: SyntaxError"),
        (["save", "fine", "first.js"], "first.js, line 1, column 11: SyntaxError"),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, list) else "",
)
def test_c5_what_is_wrong_is_said_with_exit_code_2_and_nothing_is_saved(
    project: Project, windlass: Windlass, words: list[str], said: str
) -> None:
    project.file("good.js", "return 1")
    project.file("bad.js", "const a = 1;\nreturn ;;; )")
    project.file("first.js", "const a = ;")
    project.file("empty.js", "  \n")
    project.file("list.json", '{"type": "array"}')
    (project.path / "latin.js").write_bytes(b"return '\xe9'")
    ran = windlass("tools", *words, code=2)
    assert said in ran.err
    assert not (project.home / "composed-tools").exists()
    assert windlass("tools", *words, "--json", code=2).json["error"]["category"] == "configuration"


def test_g3_a_tool_is_not_overwritten_unless_it_is_meant(project: Project, windlass: Windlass, count: str) -> None:
    project.file("other.js", "return 0")
    ran = windlass("tools", "save", count, "other.js", code=2)
    assert "--replace" in ran.err
    assert windlass("tools", "show", count, "--json").json["source"] == COUNT
    assert "without --schema it takes any arguments" in windlass("tools", "save", count, "other.js", "--replace").err
    assert windlass("tools", "show", count, "--json").json["schema"] == {"type": "object"}


def test_g3_save_warns_of_calls_that_the_grants_do_not_cover_or_that_are_of_no_tool(
    project: Project, windlass: Windlass
) -> None:
    project.file(
        "doubtful.js",
        """\
        const text = "tools.files.move({})"; /* tools.files.edit({}) */
        await tools.files.delete({path: "x"});
        await tools["files"].list({});
        await tools.git?.log({});
        const other = {tools: {shell() {}}};
        other.tools.shell();
        return tools.files.read;
        """,
    )
    told = windlass("tools", "save", "doubtful", "doubtful.js", "--grants", "files.list,nosuch.*", "--json")
    assert told.json["warnings"] == [
        "without --schema it takes any arguments",
        "it calls tools.files.delete, which its grants do not cover; save it with --grants files.delete",
        "it calls tools.git.log, which does not exist here; list all: windlass tools",
        "its grant nosuch.* matches no tool here",
    ]
    assert "warning: it calls tools.git.log" in told.err
    assert told.json["grants"] == ["files.list", "nosuch.*"]


def test_g3_schemas_come_from_files_or_stdin_and_results_are_held_to_theirs(
    project: Project, windlass: Windlass
) -> None:
    project.file("double.js", "return args.n * 2")
    project.file("text.json", '{"type": "string"}')
    schema = '{"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}'
    windlass("tools", "save", "double", "double.js", "--schema", "-", "--returns", "text.json", stdin=schema)
    assert windlass("tools", "show", "double", "--json").json["returns"] == {"type": "string"}
    assert (
        "does not match its `returns`" in windlass("tools", "run", "double", "--with", '{"n": 1}', *QUIET, code=1).err
    )


def test_g3_a_tool_for_all_projects_is_kept_in_the_users_folder_and_a_projects_own_stands_before_it(
    project: Project, windlass: Windlass
) -> None:
    project.file("one.js", "return 1")
    project.file("two.js", "return 2")
    windlass("tools", "save", "number", "one.js", "--global")
    assert not project.home.exists()
    assert (project.user / ".config" / "windlass" / "composed-tools" / "number.js").exists()
    assert windlass("tools", "run", "number", *QUIET).out == "1\n"
    assert "--global" in windlass("tools", "delete", "number", "--yes", code=2).err
    windlass("tools", "save", "number", "two.js")
    assert windlass("tools", "run", "number", *QUIET).out == "2\n"
    assert "hidden by the project's own tool" in windlass("tools").err
    windlass("tools", "delete", "number", "--yes")
    assert windlass("tools", "show", "number", "--json").json["scope"] == "user"
    windlass("tools", "delete", "number", "--global", "--yes")
    windlass("tools", "show", "number", code=2)


def test_g3_nothing_is_deleted_unasked(project: Project, windlass: Windlass, count: str) -> None:
    assert f"windlass tools delete {count} --yes" in windlass("tools", "delete", count, code=2).err
    terminal = windlass.terminal("tools", "delete", count)
    terminal.expect("Delete the composed tool count_words?")
    terminal.type("n\n")
    assert terminal.ended().code == 1
    windlass("tools", "show", count)


def test_g3_damaged_tools_are_told_on_stderr_and_strangers_words_cannot_steer_the_terminal(
    project: Project, windlass: Windlass
) -> None:
    folder = ".windlass/composed-tools"
    project.file(f"{folder}/evil.js", "return '\x1b[2J'")
    project.file(f"{folder}/evil.json", '{"format": 1, "schema": {"type": "object", "title": "\\u001b[2J"}}')
    project.file(f"{folder}/torn.json", '{"format": 1')
    project.file(f"{folder}/torn.js", "return 1")
    ran = windlass("tools")
    assert "warning: " in ran.err
    assert "torn.json is not JSON" in ran.err
    assert "torn" not in ran.out
    for told in (ran, windlass("tools", "show", "evil"), windlass("tools", "types")):
        assert "\x1b" not in told.out + told.err
    assert [tool["name"] for tool in windlass("tools", "--json").json if tool["kind"] == "composed"] == ["evil"]


def test_g2_types_are_those_of_all_tools_or_of_those_that_fit(project: Project, windlass: Windlass, count: str) -> None:
    whole = windlass("tools", "types").out
    assert whole.startswith("declare const tools: {\n")
    assert "count_words: (args: { paths: string[] })" in whole
    assert "agent" not in whole.split("/**")[0]
    told = windlass("tools", "types", "count words", "--json").json
    assert told["tools"][0] == count
    assert "count_words" in told["typescript"]


def test_i1_names_of_tools_are_completed(project: Project, windlass: Windlass, count: str) -> None:
    ran = windlass(_WINDLASS_COMPLETE="bash_complete", COMP_WORDS="windlass tools run cou", COMP_CWORD="3")
    assert ran.out.split() == [f"plain,{count}"]
    assert not [name for name in windlass("--home", "elsewhere", "tools", "--json").json if name["name"] == count]
    assert not (project.path / "elsewhere").exists()
