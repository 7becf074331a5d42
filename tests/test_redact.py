"""Secrets are blotted out of what leaves (TRUST: secrets)."""

from __future__ import annotations

import json

import pytest

from windlass.redact import Redactor

ENV = {
    "ANTHROPIC_API_KEY": "canary-anthropic-1",
    "GITHUB_TOKEN": "canary-github-22",
    "DB_PASSWORD": 'can"ary\\ü-3',
    "AWS_SECRET_ACCESS_KEY": "canary/aws+4444",
    "MY_AUTH": "canary-auth-5",
    "PATH": "/usr/bin:/bin:/sbin",
    "MONKEY_ISLAND": "not-a-secret-at-all",
    "SHORT_TOKEN": "abc",
}


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    return Redactor(ENV, {"server token": "canary-server-6"})


def test_values_of_secret_variables_are_blotted_out_by_name(redactor: Redactor) -> None:
    for name in ("ANTHROPIC_API_KEY", "GITHUB_TOKEN", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "MY_AUTH"):
        assert redactor.text(f"a {ENV[name]} b {ENV[name]}") == f"a [{name}] b [{name}]"
    assert redactor.text("canary-server-6") == "[server token]"


def test_other_values_and_short_ones_stay(redactor: Redactor) -> None:
    for text in (ENV["PATH"], ENV["MONKEY_ISLAND"], "abc def", "", "sk-short", "key: value", "a bearer of news"):
        assert redactor.text(text) == text


@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_secret_inside_json_is_found_and_the_json_stays_json(redactor: Redactor, ascii_only: bool) -> None:
    text = json.dumps({"out": ENV["DB_PASSWORD"], "n": 1}, ensure_ascii=ascii_only)
    assert json.loads(redactor.text(text)) == {"out": "[DB_PASSWORD]", "n": 1}


@pytest.mark.parametrize(
    "secret",
    [
        "sk-" + "ant-api03-" + "a1B2" * 6,
        "sk-" + "proj-" + "Ab12" * 8,
        "ghp" + "_" + "a1" * 15,
        "github" + "_pat_" + "a1" * 15,
        "glpat" + "-" + "a1" * 10,
        "AKIA" + "ABCDEFGHIJKLMNOP",
        "AIza" + "x" * 35,
        "xoxb" + "-1234567890-abcdef",
        "npm" + "_" + "a1" * 18,
        "sk" + "_live_" + "a1" * 10,
    ],
)
def test_keys_of_well_known_forms_are_blotted_out(redactor: Redactor, secret: str) -> None:
    assert secret not in redactor.text(f'{{"a": "{secret}"}}')


def test_tokens_in_headers_addresses_and_key_files_are_blotted_out(redactor: Redactor) -> None:
    bearer = "Authorization: BEARER " + "abc." * 6
    assert redactor.text(bearer) == "Authorization: BEARER [bearer token]"
    assert redactor.text("https://me:hunter2@host/x") == "https://[token in an address]@host/x"
    begin, end = "-----BEGIN RSA " + "PRIVATE KEY-----", "-----END RSA " + "PRIVATE KEY-----"
    assert redactor.text(f"a {begin}\nMII\n{end} b") == "a [private key] b"
    assert redactor.text(f"a {begin}\nMII cut") == "a [private key]"


def test_a_secret_that_begins_like_another_is_whole(redactor: Redactor) -> None:
    found = Redactor({"A_TOKEN": "canary-12345", "B_TOKEN": "canary-12345-more"})
    assert found.text("canary-12345-more canary-12345") == "[B_TOKEN] [A_TOKEN]"


def test_bytes_that_are_no_text_are_kept_but_for_the_secret(redactor: Redactor) -> None:
    assert redactor.bytes(b"\xff\xfe canary-auth-5 \x00") == b"\xff\xfe [MY_AUTH] \x00"
    clean = b"nothing here"
    assert redactor.bytes(clean) is clean


def test_nothing_to_hide_is_no_problem() -> None:
    assert Redactor({}).text("plain text") == "plain text"


def test_a_key_that_is_cut_off_inside_json_does_not_take_the_rest_with_it(redactor: Redactor) -> None:
    text = json.dumps({"out": "-----BEGIN RSA " + "PRIVATE KEY-----\nMII", "n": 1})
    assert json.loads(redactor.text(text)) == {"out": "[private key]", "n": 1}
