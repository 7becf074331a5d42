"""A release: its man page, its list of parts, and packages that are the same however often they are built."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MADE = datetime(2024, 5, 6, tzinfo=UTC)

sys.path.insert(0, str(ROOT / "scripts"))

import man_page  # noqa: E402  the scripts are no package
import release  # noqa: E402
import sbom  # noqa: E402


def test_the_man_page_has_every_command_with_every_option() -> None:
    page = man_page.page(MADE)
    sections = dict(re.findall(r'^\.SS "(.+?)"\n(.*?)(?=^\.S[SH] |\Z)', page, re.MULTILINE | re.DOTALL))
    known = {called: command for called, command in man_page.commands(man_page.app, "windlass") if " " in called}
    assert {"windlass run", "windlass plan check", "windlass schedule why"} <= set(known) == set(sections)
    for called, command in known.items():
        for param in command.params:
            if not getattr(param, "hidden", False):
                assert param.opts[0].replace("-", "\\-") in sections[called] or param.param_type_name == "argument"


def test_the_man_page_is_read_by_man_without_a_warning(tmp_path: Path) -> None:
    page = tmp_path / "windlass.1"
    page.write_text(man_page.page(MADE))
    try:
        shown = subprocess.run(["groff", "-man", "-Kutf8", "-Tutf8", "-ww", str(page)], capture_output=True, check=True)
    except FileNotFoundError:
        pytest.skip("groff is not here: apt-get install groff")
    assert shown.stderr == b""
    assert "go on where it stopped" in shown.stdout.decode()


def test_the_sbom_has_every_part_of_the_locks_with_its_hash() -> None:
    parts = {part["purl"]: part for part in sbom.document("1.2.3", MADE)["components"]}
    pins = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements" / "run.txt").read_text(), re.MULTILINE)
    assert len(pins) > 50
    for name, version in pins:
        (where,) = parts[f"pkg:pypi/{name}@{version}"]["externalReferences"]
        assert where["hashes"]
    in_dashboard = json.loads((ROOT / "dashboard" / "package.json").read_text())["dependencies"]
    assert in_dashboard.keys() <= {part["name"] for purl, part in parts.items() if purl.startswith("pkg:npm/")}
    assert [part["hashes"] for purl, part in parts.items() if "quickjs" in purl]


def test_the_sbom_tells_the_core_from_the_extras_and_is_the_same_each_time() -> None:
    document = sbom.document("1.2.3", MADE)
    scopes = {part["name"]: part["scope"] for part in document["components"]}
    assert {scopes[name] for name in ("click", "msgspec", "markupsafe")} == {"required"}
    assert {scopes[name] for name in ("fastapi", "anthropic", "psycopg")} == {"optional"}
    assert document == sbom.document("1.2.3", MADE)
    assert document["serialNumber"] != sbom.document("1.2.4", MADE)["serialNumber"]


@pytest.mark.soak
def test_packages_built_from_the_sdist_are_the_same_and_run_the_demo(tmp_path: Path) -> None:
    release.MAN_PAGE.write_text(man_page.page(MADE))
    try:
        hashes = release.build(ROOT, tmp_path, 1714979290)
    finally:
        release.MAN_PAGE.unlink()
    (sdist,), (wheel,) = tmp_path.glob("*.tar.gz"), tmp_path.glob("*.whl")
    assert release.build_again(sdist, 1714979290) == hashes
    assert "the demo completed" in release.try_wheel(sys.executable, wheel)
