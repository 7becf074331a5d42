"""Tokens, login codes, sessions and links: what opens the door, once, in time, and to whom (TRUST: access)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from windlass.errors import NotPermitted, UsageError
from windlass.server.access import CODE_LIFE, SESSION_LIFE, Access
from windlass.server.service import ServerLock
from windlass.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def access(tmp_path: Path, clock: FakeClock) -> Access:
    return Access(tmp_path, clock.now)


def test_the_token_is_made_once_long_and_for_its_user_alone(tmp_path: Path, access: Access, clock: FakeClock) -> None:
    assert len(access.token) >= 40
    assert access.file.stat().st_mode & 0o777 == 0o600
    assert Access(tmp_path, clock.now).token == access.token
    assert [path.name for path in tmp_path.iterdir()] == ["server.token"]
    assert access.has_token(access.token)
    for wrong in ("", access.token[:-1], access.token + "x", access.token.upper(), "ü"):
        assert not access.has_token(wrong)


def test_a_token_that_others_could_read_is_refused_with_what_to_do(access: Access, clock: FakeClock) -> None:
    os.chmod(access.file, 0o644)
    with pytest.raises(NotPermitted) as caught:
        Access(access.file.parent, clock.now)
    assert f"rm {access.file}" in caught.value.advice[0]


@pytest.mark.parametrize("text", ["", "short", "\n\n"])
def test_a_file_without_a_token_is_refused(tmp_path: Path, clock: FakeClock, text: str) -> None:
    (tmp_path / "server.token").write_text(text)
    os.chmod(tmp_path / "server.token", 0o600)
    with pytest.raises(NotPermitted, match="contains no token"):
        Access(tmp_path, clock.now)


@pytest.mark.parametrize(("make", "remove"), [(os.mkdir, "rm -r "), (os.mkfifo, "rm ")])
def test_i6_a_folder_or_a_pipe_in_the_token_files_place_is_refused(
    tmp_path: Path, clock: FakeClock, make: Callable[[Path], None], remove: str
) -> None:
    make(tmp_path / "server.token")
    with pytest.raises(NotPermitted, match="is not a regular file") as caught:
        Access(tmp_path, clock.now)
    assert caught.value.advice[0].endswith(f"{remove}{tmp_path / 'server.token'}")


def test_a_link_in_the_token_files_place_is_not_followed(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "elsewhere").write_text("x" * 40)
    (tmp_path / "server.token").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="cannot be read"):
        Access(tmp_path, clock.now)


def test_a_login_code_works_once_and_only_in_time(access: Access, clock: FakeClock) -> None:
    code = access.login_code()
    session = access.redeem(code)
    assert session is not None
    assert access.has_session(session)
    assert access.redeem(code) is None
    late = access.login_code()
    clock.advance(CODE_LIFE)
    assert access.redeem(late) is None
    assert access.redeem("") is None


def test_a_session_outlives_the_server_and_ends_in_time_or_with_the_token(
    tmp_path: Path, access: Access, clock: FakeClock
) -> None:
    session = access.redeem(access.login_code())
    assert session is not None
    assert Access(tmp_path, clock.now).has_session(session)
    access.file.unlink()
    assert not Access(tmp_path, clock.now).has_session(session)
    clock.advance(SESSION_LIFE)
    assert not access.has_session(session)


def test_what_a_clock_that_was_ahead_gave_out_ends_when_it_is_set_right(access: Access, clock: FakeClock) -> None:
    right = clock.now()
    clock.advance(86_400.0)
    session, code = access.redeem(access.login_code()), access.login_code()
    assert session is not None
    clock.set(clock.now() - 60.0)
    assert access.has_session(session), "time servers turn clocks back by a little"
    clock.set(right)
    assert not access.has_session(session)
    assert access.redeem(code) is None


def test_a_forged_session_is_none(access: Access) -> None:
    session = access.redeem(access.login_code())
    assert session is not None
    name, until, signature = session.split(".")
    forged = [
        "",
        ".",
        "..",
        name,
        f"{name}.{int(until) + 1}.{signature}",
        f"{name}.{until}.",
        session[:-1],
        session + "A",
    ]
    assert not any(access.has_session(text) for text in forged)


def test_an_approval_link_answers_exactly_one_question(access: Access, clock: FakeClock) -> None:
    link = access.approval_link("e1", "step", "digest", clock.now() + 100)
    told = dict(parse_qsl(urlsplit(link).query))
    assert urlsplit(link).path == "/approve"
    assert access.token not in link
    assert access.may_answer(**told)
    for name in told:
        assert not access.may_answer(**{**told, name: told[name] + "1"})
    # Parts cannot be moved from one field into its neighbour.
    assert not access.may_answer(**{**told, "execution": "e1s", "step": "tep"})
    clock.advance(100)
    assert not access.may_answer(**told)


@pytest.mark.parametrize(
    ("make", "why"), [(os.mkdir, "Is a directory"), (os.mkfifo, "it is not a regular file")], ids=["folder", "pipe"]
)
def test_i2_something_else_in_the_place_of_the_servers_lock_is_refused(
    tmp_path: Path, make: Callable[[Path], None], why: str
) -> None:
    make(tmp_path / "server.lock")
    with pytest.raises(UsageError, match=rf"server\.lock cannot be opened: {why}") as caught:
        ServerLock(tmp_path)
    assert caught.value.advice[0].endswith(f"ls -ld {tmp_path / 'server.lock'}")
