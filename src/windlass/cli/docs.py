"""`docs`: the pages of the documentation, as they belong to this version."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from windlass.cli.command import Argument, Group
from windlass.cli.session import out, out_lines, suggest
from windlass.errors import UsageError

__all__ = ["PAGES", "register"]

_PACKAGE = Path(__file__).resolve().parents[1]
PAGES = next(
    (there for there in (_PACKAGE / "docs", _PACKAGE.parents[1] / "docs") if there.is_dir()), _PACKAGE / "docs"
)
"""In a wheel beside the code; in a checkout of the repository where they are written."""


def register(app: Group) -> None:
    app.add(docs)


def docs(
    page: Annotated[str | None, Argument(metavar="PAGE", help="A page of the list; without it, the list")] = None,
) -> None:
    """Show a page of the documentation; without PAGE, list them.

    \b
    windlass docs plans | less
    windlass docs guides/nightly
    """
    pages = {path.relative_to(PAGES).with_suffix("").as_posix(): path for path in sorted(PAGES.rglob("*.md"))}
    pages = {
        name: path for name, path in pages.items() if not name.startswith("decisions/")
    }  # those are for developers
    if not pages:
        anew = "install it anew: pip install --force-reinstall windlass"
        raise UsageError("this installation has no pages", advice=(anew,))
    if page is None:
        width = max(map(len, pages))
        for name, path in pages.items():
            out(f"{name:<{width}}  {_title(path)}")
        suggest("read one: windlass docs PAGE")
        return
    name = page.removeprefix("docs/").removesuffix(".md")
    named_so = [known for known in pages if known.rpartition("/")[2] == name]
    if name not in pages and len(named_so) == 1:  # `nightly` is guides/nightly
        (name,) = named_so
    if name not in pages:
        from windlass.plan.schema import nearest

        near = nearest(name, pages)
        meant = f"; did you mean `{near}`?" if near else ""
        raise UsageError(f"there is no page {page!r}{meant}", advice=("see all pages: windlass docs",))
    out_lines(pages[name].read_text(encoding="utf-8").rstrip("\n"))


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as text:
        return text.readline().removeprefix("# ").strip()
