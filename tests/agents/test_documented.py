"""docs/agents.md states the limits, keys and modes that the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from windlass import globs
from windlass.agents import context, places, prompt, reading, rolefiles, roles, rules, skills

PAGE = (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")


def row(first_cell: str) -> str:
    (found,) = re.findall(rf"^\| {re.escape(first_cell)} \| (.*) \|$", PAGE, re.MULTILINE)
    return str(found)


def kib(count: int) -> str:
    return f"{count // 1024**2} MiB" if count % 1024**2 == 0 else f"{count // 1024} KiB"


@pytest.mark.parametrize(
    ("what", "limit"),
    [
        ("one context file; all together", f"{kib(context.MAX_FILE)}; {kib(context.MAX_ALL)} (further files"),
        ("a role, a skill, a file that `{file:…}` names", kib(rolefiles.MAX_ROLE)),
        ("a role, a skill, a file that `{file:…}` names", kib(skills.MAX_SKILL)),
        ("a role, a skill, a file that `{file:…}` names", kib(rolefiles.MAX_PROMPT)),
        ("frontmatter", kib(reading.MAX_FRONTMATTER)),
        ("`opencode.json`", kib(rolefiles.MAX_CONFIG)),
        ("one file of rules; all together", f"{kib(rules.MAX_RULES)}; {kib(rules.MAX_ALL_RULES)}"),
        (
            "beneath one folder of roles or skills",
            f"{places.MAX_DEPTH} levels, {places.MAX_ENTRIES:,} names, {places.MAX_FILES:,} files",
        ),
        ("one pattern", f"{globs.MAX_LOOKED_AT:,} names looked at, {globs.MAX_MATCHES:,} files"),
        (
            "what one earlier step leaves; all of them",
            f"{prompt.MAX_HANDOFF // 1024} Ki characters; {prompt.MAX_ALL_HANDOFF // 1024**2} Mi characters",
        ),
    ],
)
def test_a_limit_is_the_codes_own(what: str, limit: str) -> None:
    assert row(what).startswith(limit)


def test_every_alias_is_named() -> None:
    assert set(roles.ALIASES.values()) == {"developer"}
    assert " and ".join(f"`{alias}`" for alias in roles.ALIASES) + " mean `developer`" in PAGE


@pytest.mark.parametrize(
    "key", ["tools", "disallowedTools", "model", "permissionMode", "permission", "maxTurns", "skills"]
)
def test_every_key_has_a_row(key: str) -> None:
    assert row(f"`{key}`")
