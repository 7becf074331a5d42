"""Builds the documentation as a site into site/: `make site`. The build needs no network, and the pages load nothing.

The pages of the repository are copied beside each other as they are, so that their links hold. Added are the reference
pages (`reference.py`) and lists for folders without a page; taken away are links to what the site does not have, such
as tests. `mkdocs --strict` then refuses every link, and every heading that a link names, that is not there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import reference

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / ".site"
SITE = ROOT / "site"
MKDOCS = ROOT / ".venv" / "site" / "bin" / "mkdocs"
COPIED = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs", "examples")
KEPT = {".md", ".png", ".svg", ".yaml", ".py", ".js", ".json", ".sh", ".txt", ".csv"}
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FOREIGN = re.compile(
    r"""(?:<(?:script|img|link|iframe)\b[^>]*?(?:src|href)=|url\(|@import )["']?(?:https?:)?//[^"'\s>)]+"""
)
"""Something of another host that a browser would load by itself."""


def gather() -> None:
    """Copy the pages, and write those that are made."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    for name in COPIED:
        for file in [ROOT / name, *(ROOT / name).rglob("*")]:
            if file.is_file() and file.suffix in KEPT and ".windlass" not in file.parts:
                target = SOURCE / file.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, target)
    pages = SOURCE / "docs" / "reference"
    pages.mkdir()
    for made in (reference.plan_page, reference.commands_page, reference.http_page):
        (pages / f"{made.__name__.removesuffix('_page')}.md").write_text(made(), encoding="utf-8")
    for folder in ("examples", "docs/decisions"):
        _list(SOURCE / folder)
    for page in SOURCE.rglob("*.md"):
        page.write_text(_linked(page, page.read_text(encoding="utf-8")), encoding="utf-8")


def _list(folder: Path) -> None:
    """Write the first page of a folder that has none: the titles of the pages in it."""
    pages = sorted({*folder.glob("*.md"), *folder.glob("*/README.md")} - {folder / "README.md"})
    titles = ((page.read_text(encoding="utf-8").partition("\n")[0].lstrip("# "), page) for page in pages)
    lines = [f"- [{title}]({page.relative_to(folder)})" for title, page in titles]
    (folder / "README.md").write_text("\n".join([f"# {folder.name.capitalize()}", "", *lines, ""]), encoding="utf-8")


def _linked(page: Path, text: str) -> str:
    """The page with links that hold in the site: a folder's is to its first page, one to nothing here is its text."""

    def replace(found: re.Match[str]) -> str:
        words, link = found[1], found[2]
        path, mark, anchor = link.partition("#")
        if "://" in link or not path:
            return found[0]
        target = Path(os.path.normpath(page.parent / path))
        if target.is_dir() and (target / "README.md").is_file():
            return f"[{words}]({path.rstrip('/')}/README.md{mark}{anchor})"
        return found[0] if target.is_file() else words

    return LINK.sub(replace, text)


def foreign() -> list[str]:
    """What the pages would load from another host."""
    return [
        f"{file.relative_to(SITE)} loads something from another host: {match}"
        for file in sorted(SITE.rglob("*"))
        if file.suffix in {".html", ".css"}
        for match in FOREIGN.findall(file.read_text(encoding="utf-8"))
    ]


def build() -> list[str]:
    """Build the site from what was gathered; returns what is wrong with it."""
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "true"}
    command = [str(MKDOCS), "build", "--strict", "--clean"]  # with --quiet, it would pass over links that lead nowhere
    built = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if built.returncode:
        return [line for line in built.stderr.splitlines() if not line.startswith("INFO")]
    return foreign()


def main() -> None:
    gather()
    if wrong := build():
        sys.exit("\n".join(wrong))
    sys.stdout.write(f"the site is in {SITE}: open {SITE / 'index.html'}\n")


if __name__ == "__main__":
    main()
