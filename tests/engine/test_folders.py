"""Watched folders: each new or changed file comes once, when nobody writes it any more (L1)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from windlass.engine import folders
from windlass.engine.folders import Seen, folder_trouble, look_into, seen_files, watched_name
from windlass.errors import UsageError
from windlass.plan.triggers import FolderWatch

NOW = 1_800_000_000.0
WATCH = FolderWatch(path="inbox", files="*.csv", settle=5)


class Inbox:
    """A folder, and what was seen of it."""

    def __init__(self, base: Path) -> None:
        self.base, self.folder = base, base / "inbox"
        self.folder.mkdir()
        self.seen: Seen = {}

    def put(self, name: str, text: str, age: float = 60.0) -> None:
        (self.folder / name).write_text(text)
        os.utime(self.folder / name, (NOW - age, NOW - age))

    def look(self, room: int = 10) -> list[str]:
        found = look_into(WATCH, str(self.base), self.seen, NOW, room)
        self.seen = self.seen if found.seen is None else found.seen
        return [one.name for one in found.arrived]


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(tmp_path)


def test_l1_a_file_comes_once_and_again_when_its_content_has_changed(inbox: Inbox) -> None:
    inbox.put("a.csv", "1")
    assert inbox.look() == ["a.csv"]
    assert inbox.look() == []
    inbox.put("a.csv", "1", age=30)
    assert inbox.look() == [], "another time of the same content is no change"
    assert inbox.seen == seen_files(WATCH, str(inbox.base)), "and it is not read again for it"
    inbox.put("a.csv", "2", age=20)
    assert inbox.look() == ["a.csv"]


def test_l1_a_file_that_cannot_be_read_waits_alone(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, flags: int) -> int:
        if path.endswith(("old.csv", "locked.csv")):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path, flags)

    real = folders._open_file
    monkeypatch.setattr(folders, "_open_file", refuse)  # root may read everything
    inbox.put("old.csv", "1")
    inbox.seen = seen_files(WATCH, str(inbox.base))
    inbox.put("locked.csv", "1")
    inbox.put("open.csv", "1")
    found = look_into(WATCH, str(inbox.base), inbox.seen, NOW, 10)
    assert [one.name for one in found.arrived] == ["open.csv"]
    assert found.held == {"locked.csv": "cannot be read: Permission denied"}
    monkeypatch.setattr(folders, "_open_file", real)
    assert inbox.look() == ["locked.csv", "open.csv"], "and old.csv was there before"


def test_l1_a_file_that_may_still_be_written_is_left_for_later(inbox: Inbox) -> None:
    inbox.put("a.csv", "1", age=1)
    assert look_into(WATCH, str(inbox.base), {}, NOW, 10).held == {"a.csv": "settles in 4 s"}
    assert inbox.look() == []
    inbox.put("a.csv", "12", age=5)
    assert inbox.look() == ["a.csv"]
    inbox.put("a.csv", "123", age=1)
    assert inbox.look() == []
    inbox.put("future.csv", "1", age=-3600)
    assert inbox.look() == ["future.csv"], "a time from another clock says nothing about the writing"


def test_l1_files_without_room_stay_for_the_next_look_oldest_first(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: str, flags: int) -> int:
        raise AssertionError(f"{path} need not be read")

    for number in range(5):
        inbox.put(f"{number}.csv", str(number), age=100 + number)
    assert inbox.look(room=2) == ["4.csv", "3.csv"]
    with monkeypatch.context() as patch:
        patch.setattr(folders, "_open_file", read)
        assert inbox.look(room=0) == []
    assert inbox.look() == ["2.csv", "1.csv", "0.csv"]


def test_l1_a_file_that_is_taken_away_while_the_folder_is_read_is_not_there(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = folders._entries

    def late(watch: FolderWatch, workdir: str) -> list[os.DirEntry[str]]:
        found = entries(watch, workdir)
        (inbox.folder / "a.csv").unlink()
        return found

    inbox.put("a.csv", "1")
    inbox.seen = seen_files(WATCH, str(inbox.base))
    monkeypatch.setattr(folders, "_entries", late)
    assert look_into(WATCH, str(inbox.base), inbox.seen, NOW, 10) == ([], {}, {})


def test_l1_braces_of_the_pattern_stand_for_several_texts(inbox: Inbox) -> None:
    for name in ("a.csv", "b.json", "c.txt"):
        inbox.put(name, "1")
    watch = FolderWatch(path="inbox", files="*.{csv,json}", settle=5)
    assert [one.name for one in look_into(watch, str(inbox.base), {}, NOW, 10).arrived] == ["a.csv", "b.json"]


def test_l1_only_files_that_fit_the_pattern_come(inbox: Inbox) -> None:
    inbox.put("a.txt", "1")
    (inbox.folder / "folder.csv").mkdir()
    (inbox.folder / "link.csv").symlink_to(inbox.folder / "a.txt")
    assert look_into(WATCH, str(inbox.base), {}, NOW, 10) == ([], None, {})


def test_l1_a_file_of_any_name_comes_and_one_that_cannot_be_an_input_starts_nothing(inbox: Inbox) -> None:
    odd = ["a b.csv", "it's.csv", "no\xa0break.csv", "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{ROCKET}.csv", "\ue000.csv"]
    for name in (*odd, "bad\x1bname.csv", "bad\nname.csv", os.fsdecode(b"bad\xffname.csv")):
        inbox.put(name, "1")
    arrived, seen, _held = look_into(WATCH, str(inbox.base), {}, NOW, 10)
    assert {one.name: one.refusal for one in arrived} == {
        **dict.fromkeys(odd, ""),
        r"'bad\x1bname.csv'": "its name has control characters, so it cannot be an input: rename it",
        r"'bad\nname.csv'": "its name has control characters, so it cannot be an input: rename it",
        r"'bad\udcffname.csv'": "its name is not UTF-8, so it cannot be an input: rename it",
    }
    assert seen == seen_files(WATCH, str(inbox.base))
    inbox.seen = seen or {}
    assert inbox.look() == []


def test_l1_a_folder_that_is_not_there_yet_is_empty_and_an_unreadable_one_is_an_error(tmp_path: Path) -> None:
    assert seen_files(WATCH, str(tmp_path)) == {}
    (tmp_path / "inbox").write_text("no folder")
    with pytest.raises(UsageError, match="the folder inbox cannot be watched: Not a directory"):
        seen_files(WATCH, str(tmp_path))
    with pytest.raises(UsageError, match="cannot be watched"):
        look_into(WATCH, str(tmp_path), {}, NOW, 1)


def test_l1_what_was_there_before_does_not_come(inbox: Inbox) -> None:
    inbox.put("old.csv", "1")
    inbox.seen = seen_files(WATCH, str(inbox.base))
    assert inbox.look() == []
    (inbox.folder / "old.csv").unlink()
    assert inbox.look() == []
    assert inbox.seen == {}


def test_l1_a_file_of_a_later_time_than_a_database_holds_has_the_latest_that_it_does(inbox: Inbox) -> None:
    inbox.put("a.csv", "1", age=NOW - 15_032_385_535)
    assert seen_files(WATCH, str(inbox.base))["a.csv"].changed == 9_223_372_036_854_775_807


def test_l1_a_folder_that_is_there_is_no_trouble_and_the_others_say_theirs(inbox: Inbox) -> None:
    assert folder_trouble(WATCH, str(inbox.base)) == ""
    inbox.folder.rmdir()
    assert folder_trouble(WATCH, str(inbox.base)) == "the folder inbox is not there"
    inbox.folder.write_text("no folder")
    assert "the folder inbox cannot be watched: Not a directory" in folder_trouble(WATCH, str(inbox.base))


def test_l1_a_file_is_named_by_its_name_or_its_path_in_the_folder(inbox: Inbox) -> None:
    inbox.put("a.csv", "1")
    inbox.put("a.txt", "1")
    inbox.put("bad\x1bname.csv", "1")
    base = str(inbox.base)
    assert watched_name(WATCH, base, "a.csv") == "a.csv"
    assert watched_name(WATCH, base, str(inbox.folder / "a.csv")) == "a.csv"
    for other in ("b.csv", "a.txt", str(inbox.base / "a.csv")):
        with pytest.raises(UsageError, match=r"the folder inbox has no file .* that fits \*\.csv"):
            watched_name(WATCH, base, other)
    with pytest.raises(UsageError, match=r"^'bad\\x1bname.csv': its name has control characters"):
        watched_name(WATCH, base, "bad\x1bname.csv")


def test_l1_files_of_one_look_start_in_their_order_a_millisecond_apart(inbox: Inbox) -> None:
    for name, age in (("late.csv", 10.0), ("early.csv", 90.0), ("other.csv", 90.0)):
        inbox.put(name, name, age)
    arrived = look_into(WATCH, str(inbox.base), {}, NOW, 3).arrived
    assert [(one.name, one.at) for one in arrived] == [
        ("early.csv", NOW),
        ("other.csv", NOW + 0.001),
        ("late.csv", NOW + 0.002),
    ]


def test_l1_a_look_that_finds_nothing_new_writes_nothing(inbox: Inbox) -> None:
    inbox.put("a.csv", "1")
    known = seen_files(WATCH, str(inbox.base))
    assert look_into(WATCH, str(inbox.base), known, NOW, 3) == ([], None, {})


def test_l1_a_file_that_a_server_with_another_clock_has_just_written_settles_first(inbox: Inbox) -> None:
    inbox.put("a.csv", "1", age=-20)
    inbox.put("b.csv", "2", age=-3600)
    found = look_into(WATCH, str(inbox.base), {}, NOW, 3)
    assert found.held == {"a.csv": "settles in 25 s"}
    assert [one.name for one in found.arrived] == ["b.csv"], "a time that is far ahead says nothing"


def test_l1_a_file_written_at_this_moment_settles_first(inbox: Inbox) -> None:
    inbox.put("a.csv", "1", age=0)
    assert look_into(WATCH, str(inbox.base), {}, NOW, 3).held == {"a.csv": "settles in 5 s"}


def test_l1_a_file_that_becomes_a_pipe_or_a_link_before_it_is_read_does_not_come(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swap(path: str, flags: int) -> int:
        os.unlink(path)
        if path.endswith("pipe.csv"):
            os.mkfifo(path)
        else:
            os.symlink("/etc/hostname", path)
        return real(path, flags)

    real = folders._open_file
    monkeypatch.setattr(folders, "_open_file", swap)
    inbox.put("pipe.csv", "1")
    inbox.put("link.csv", "1")
    found = look_into(WATCH, str(inbox.base), {}, NOW, 3)
    assert found.arrived == []
    assert list(found.held) == ["link.csv"]


def test_l1_a_large_file_is_read_to_its_end(inbox: Inbox) -> None:
    text = "x" * (folders._BLOCK + 1)
    inbox.put("a.csv", text)
    assert inbox.look() == ["a.csv"]
    inbox.put("a.csv", text[:-1] + "y", age=30)
    assert inbox.look() == ["a.csv"]
