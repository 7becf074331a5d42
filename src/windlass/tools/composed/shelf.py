"""The shelf: the project's composed tools before those that the user keeps for all projects."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from windlass.errors import NotFound, UsageError
from windlass.ports.composed import ComposedTool, Uses
from windlass.tools.composed.folder import Folder
from windlass.tools.composed.names import check_free, check_name, clash, taken
from windlass.tools.composed.record import faults

__all__ = ["ComposedShelf"]


class ComposedShelf:
    """Implements `Shelf`. May be used from several threads, and beside other processes."""

    def __init__(self, project: Path, user: Path, reserved: Callable[[], Collection[str]]) -> None:
        self._project = Folder(project, everywhere=False)
        self._user = Folder(user, everywhere=True)
        self._reserved = reserved
        """Names of the tools that are not composed ones: theirs are the first words of their names."""
        self._lock = threading.Lock()

    def all(self) -> list[ComposedTool]:
        return self._look()[0]

    def stamp(self) -> object:
        return tuple(folder.stamp() for folder in self._folders)

    def problems(self) -> list[str]:
        troubles = [folder.uses.trouble for folder in self._folders]
        return [*self._look()[1], *(trouble for trouble in troubles if trouble)]

    def save(self, tool: ComposedTool) -> Path:
        check_name(tool.name)
        check_free(tool.name, self._reserved())
        if wrong := faults(tool):
            raise UsageError(
                f"the composed tool {tool.name} cannot be saved:\n" + "\n".join(f"  {reason}" for reason in wrong)
            )
        with self._lock:
            others = {name for folder in self._folders for name in folder.look().tools}
            if other := clash(tool.name, others):
                raise UsageError(
                    f"a composed tool cannot be named {tool.name!r} beside {other!r}: a name is a tool or a group",
                    advice=("choose another name, or delete the other first",),
                )
            return self._place(tool.everywhere).save(tool)

    def delete(self, name: str, *, everywhere: bool | None = None) -> None:
        check_name(name)
        with self._lock:
            places = [self._place(everywhere)] if everywhere is not None else self._folders
            holding = [folder for folder in places if folder.holds(name)]
            if not holding:
                known = [known for folder in places for known in folder.look().tools]
                near = difflib.get_close_matches(name, known, 1)
                raise NotFound(
                    f"there is no composed tool {name!r} in " + " or ".join(str(folder.path) for folder in places),
                    advice=(f"did you mean {near[0]!r}?",) if near else (),
                )
            if len(holding) > 1:
                raise UsageError(
                    f"the composed tool {name!r} is in this project and in your own folder: which is to be deleted?",
                    advice=tuple(f"this one: {folder.path / name}.js" for folder in holding),
                )
            holding[0].delete(name)

    def used(self, tool: ComposedTool, at: float, *, failed: bool) -> None:
        self._place(tool.everywhere).uses.add(tool.name, at, failed=failed)

    def uses(self, tool: ComposedTool) -> Uses:
        return self._place(tool.everywhere).uses.of(tool.name)

    @property
    def _folders(self) -> list[Folder]:
        return [self._project, self._user]

    def _place(self, everywhere: bool) -> Folder:
        return self._user if everywhere else self._project

    def _look(self) -> tuple[list[ComposedTool], list[str]]:
        reserved = self._reserved()
        chosen: dict[str, ComposedTool] = {}
        problems: list[str] = []
        with self._lock:
            found = [(folder, folder.look()) for folder in self._folders]
        for folder, (tools, wrong) in found:
            problems += wrong
            for name, tool in sorted(tools.items()):
                file = folder.path / f"{name}.js"
                if other := taken(name, reserved):
                    problems.append(f"{file}: it is not used, since its first word belongs to the tool `{other}`")
                elif name in chosen:
                    problems.append(f"{file}: it is hidden by the project's own tool of the same name")
                elif other := clash(name, chosen):
                    problems.append(f"{file}: it is not used, since `{other}` is a composed tool too")
                else:
                    chosen[name] = tool
        return [chosen[name] for name in sorted(chosen)], problems
