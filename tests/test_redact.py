"""Secrets are blotted out of what leaves (TRUST: secrets)."""

from __future__ import annotations

import base64
import html
import json
import re
import socket
from pathlib import Path
from urllib.parse import quote, quote_plus
from xml.sax import saxutils

import markupsafe
import pytest

from windlass.redact import Redactor
from windlass.redact.redactor import is_secret_name

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


SECRET_NAMES = [
    "ANTHROPIC_API_KEY",
    "OPENAI_APIKEY",
    "GITHUB_TOKEN",
    "GH_TOKEN",
    "GITHUB_PAT",
    "AZURE_DEVOPS_EXT_PAT",
    "PGPASSWORD",
    "MYSQL_PWD",
    "SMTP_PASS",
    "SSHPASS",
    "DB_PASSWD",
    "KEY_PASSPHRASE",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "SENTRY_DSN",
    "DATABASE_DSN",
    "GCP_CREDS",
    "AZURE_CREDENTIALS",
    "DOCKER_AUTH_CONFIG",
    "REDISCLI_AUTH",
    "CLIENT_SECRET",
    "DJANGO_SECRET_KEY",
    "npm_config__auth",
    "NPM_CONFIG_//registry/:_authToken",
    "API_KEYS",
    "AZURE_STORAGE_CONNECTION_STRING",
    "SERVICE_JWT",
    "SESSION_COOKIE",
    "VAULT_TOKEN",
    "hf_token",
    "PASSWORD",
    "SECRET",
]
OTHER_NAMES = [
    "PWD",
    "OLDPWD",
    "KEYBOARD",
    "KEYMAP",
    "MONKEY",
    "TOKENIZERS_PARALLELISM",
    "SSH_AUTH_SOCK",
    "XAUTHORITY",
    "GPG_AGENT_INFO",
    "AWS_ACCESS_KEY_ID",
    "SIGNING_KEY_ID",
    "SSH_ASKPASS",
    "GIT_ASKPASS",
    "COMPASS",
    "BYPASS",
    "AUTHOR",
    "GIT_AUTHOR_NAME",
    "PATH",
    "PATTERN",
    "SPATIAL",
    "TOKEN_URL",
    "OAUTH_TOKEN_ENDPOINT",
    "SSH_PUBLIC_KEY",
    "PASSWORD_FILE",
    "GOOGLE_TOKEN_PATH",
    "KEY_LENGTH",
    "TOKEN_TTL",
    "AUTH_METHOD",
    "HOME",
    "LANG",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_SESSION_ID",
    "LESSKEY",
    "PASSENGER_APP",
]


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_i6_these_variables_are_secrets_by_name(name: str) -> None:
    assert is_secret_name(name)
    assert Redactor({name: "canary-by-name"}).text("a canary-by-name b") == f"a [{name}] b"


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_i6_these_variables_are_not_secrets(name: str) -> None:
    assert not is_secret_name(name)
    assert Redactor({name: "canary-by-name"}).text("a canary-by-name b") == "a canary-by-name b"


def test_i6_the_working_directory_stays_readable() -> None:
    env = {"PWD": "/home/me/project", "OLDPWD": "/home/me/another"}
    assert Redactor(env).text("in /home/me/project, from /home/me/another") == (
        "in /home/me/project, from /home/me/another"
    )


def test_i6_the_path_of_an_existing_file_or_socket_is_not_a_secret(tmp_path: Path) -> None:
    file, link = tmp_path / "credentials.json", tmp_path / "auth.sock"
    file.touch()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(link))
        env = {"APP_CREDENTIALS": str(file), "MY_AUTH": str(link), "OTHER_SECRET": str(tmp_path / "not-there")}
        assert Redactor(env).text(f"{file} {link}") == f"{file} {link}"
        assert Redactor(env).text(env["OTHER_SECRET"]) == "[OTHER_SECRET]"


@pytest.mark.parametrize(
    ("value", "password"),
    [
        ("postgres://app:canary-in-dsn@db.test/x", "canary-in-dsn"),
        ("postgres://app:canary%2Fin%40dsn@db.test/x", "canary/in@dsn"),
        ("redis://:canary-in-dsn@db.test:6379/0", "canary-in-dsn"),
        ("https://canary0123456789@sentry.test/42", "canary0123456789"),
        ("amqps://db.test/?token=canary-in-query&a=b", "canary-in-query"),
        ("Server=db.test;User=app;Password=canary-in-pairs;Timeout=5", "canary-in-pairs"),
        ("host=db.test user=app password='canary in pairs'", "canary in pairs"),
    ],
)
def test_i6_the_password_of_an_address_is_a_secret_and_so_is_the_address(value: str, password: str) -> None:
    redactor = Redactor({"DATABASE_URL": value})
    assert redactor.text(f"<{value}>") == "<[DATABASE_URL]>"
    assert redactor.text(f"<{password}>") == "<[DATABASE_URL]>"
    assert redactor.text("app db.test") == "app db.test"


def test_i6_an_address_without_a_password_is_not_a_secret() -> None:
    env = {"REPOSITORY": "ssh://git@host.test/repository", "API_URL": "https://host.test/api?page=12345678"}
    assert Redactor(env).text(" ".join(env.values())) == " ".join(env.values())


def test_i6_a_password_inside_another_address_is_named() -> None:
    redactor = Redactor({"DB_PASSWORD": "canary-in-address"})
    assert redactor.text("psql postgres://app:canary-in-address@db/x") == "psql postgres://app:[DB_PASSWORD]@db/x"


HARD = "c4n/ary+\"<&>\\ü~?=5'`"


def _escaped(text: str, signs: str) -> str:
    return text.translate({ord(sign): f"\\u{ord(sign):04x}" for sign in signs})


def _spelled(value: str) -> dict[str, str]:
    raw = value.encode()
    spelled = {
        "plain": value,
        "json": json.dumps(value),
        "json, not ascii": json.dumps(value, ensure_ascii=False),
        "html": html.escape(value),
        "json in html": html.escape(json.dumps(value)),
        "json of PHP": json.dumps(value).replace("/", "\\/"),
        "json of Go": _escaped(json.dumps(value, ensure_ascii=False), "<>&"),
        "json of Flask": _escaped(json.dumps(value), "<>&'"),
        "json of Gson": _escaped(json.dumps(value, ensure_ascii=False), "<>&'="),
        "json of Gson in json": json.dumps(_escaped(json.dumps(value, ensure_ascii=False), "<>&'=")),
        "json of .NET": json.dumps(value).translate({ord(sign): f"\\u{ord(sign):04X}" for sign in "<>&'+`"}),
        "html of Jinja": str(markupsafe.escape(value)),
        "xml": saxutils.escape(value, {'"': "&quot;", "'": "&apos;"}),
        "url": quote(value, safe=""),
        "url, lower case": re.sub("%..", lambda found: found[0].lower(), quote(value, safe="")),
        "url path": quote(value),
        "form": quote_plus(value),
        "hex": raw.hex(),
        "HEX": raw.hex().upper(),
        "base64": base64.b64encode(raw).decode(),
        "base64url": base64.urlsafe_b64encode(raw).decode(),
    }
    for user in ("", "u", "us", "use", "user"):
        spelled[f"basic {user}"] = "Basic " + base64.b64encode(f"{user}:{value}".encode()).decode()
        spelled[f"basic url {user}"] = base64.urlsafe_b64encode(f"{user}:{value}, and more".encode()).decode()
    return spelled


@pytest.mark.parametrize("value", [HARD, "c4n/ary+&=", "canary12", "canary-123", "canary-1234", "s e c r e t"])
def test_i6_a_secret_is_found_in_every_usual_spelling(value: str) -> None:
    redactor = Redactor({"MY_TOKEN": value})
    for how, spelled in _spelled(value).items():
        assert "[MY_TOKEN]" in redactor.text(f"a {spelled} b"), how
        assert redactor.found(f"a {spelled} b") == ("MY_TOKEN",), how


def test_i6_a_key_of_many_lines_is_found_line_by_line() -> None:
    lines = [
        "-----BEGIN ODD KEY-----",
        "canarycanarycanary0123456789",
        "canary9876543210canary",
        "-----END ODD KEY-----",
    ]
    redactor = Redactor({"SIGNING_KEY": "\n".join(lines)})
    assert redactor.text(lines[1]) == redactor.text(lines[2]) == "[SIGNING_KEY]"
    assert redactor.text(lines[0]) == lines[0]


def test_c6_the_names_of_hidden_secrets_are_told_each_once() -> None:
    redactor = Redactor({"A_TOKEN": "canary-12345", "B_TOKEN": "canary-67890"})
    assert redactor.found("nothing here") == ()
    assert redactor.found("canary-67890 canary-12345 canary-67890 ghp_" + "a1" * 15) == (
        "B_TOKEN",
        "A_TOKEN",
        "github token",
    )


def test_hundreds_of_secrets_and_texts_with_half_characters_are_searched_one_by_one() -> None:
    env = {f"N{number}_TOKEN": f"canary-number-{number:04}" for number in range(300)}
    assert Redactor(env).text("a canary-number-0123 b") == "a [N123_TOKEN] b"
    odd = {"ODD_TOKEN": "canary-\udc80-half", "LONG_TOKEN": "canary" * 50}
    redactor = Redactor(odd)
    assert redactor.text(f"\udcff {odd['ODD_TOKEN']} {odd['LONG_TOKEN']}") == "\udcff [ODD_TOKEN] [LONG_TOKEN]"
    assert redactor.text(f"ü {odd['LONG_TOKEN']}") == "ü [LONG_TOKEN]"
    assert redactor.bytes(b"\xff canary-\x80-half") == b"\xff [ODD_TOKEN]"
