"""Which folders' code may run in this process: asked about once, remembered in the user's own folder.

A plan can name Python files of tools. Loading one runs it, with all the rights of the user; a plan that one
merely downloaded must not get that unasked. The same goes for the hooks, plugins and addresses that a folder sets for
the runtimes of agents.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path

from windlass.errors import NotPermitted, UsageError
from windlass.homes import not_saved
from windlass.regular import read_regular

__all__ = ["Trust"]

Ask = Callable[[Path, list[Path]], bool]


class Trust:
    def __init__(self, user_folder: Path, ask: Ask | None = None) -> None:
        self._file = user_folder / "trusted.json"
        self._ask = ask
        """How to ask a person; None when there is nobody to ask."""

    def require(self, files: list[Path]) -> None:
        """Return if every file's folder is trusted, asking where it is not; raise otherwise."""
        for folder in dict.fromkeys(file.parent for file in files):
            if self.has(folder):
                continue
            inside = [file for file in files if file.parent == folder]
            if self._ask is None or not self._ask(folder, inside):
                names = ", ".join(file.name for file in inside)
                raise NotPermitted(
                    f"the plan wants to load Python code ({names}) from {folder}, which is not trusted",
                    advice=(f"look at the code, then trust its folder: windlass trust {shlex.quote(str(folder))}",),
                )
            self.add(folder)

    def has(self, folder: Path) -> bool:
        return str(folder.resolve()) in self.folders()

    def add(self, folder: Path) -> None:
        self._keep({*self.folders(), str(folder.resolve())})

    def remove(self, folder: Path) -> None:
        self._keep({*self.folders()} - {str(folder.resolve())})

    def _keep(self, trusted: set[str]) -> None:
        folders = sorted(trusted)
        draft = self._file.with_suffix(f".{os.getpid()}")
        try:
            draft.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.write_text(json.dumps({"folders": folders}, indent=2))
            draft.replace(self._file)
        except OSError as error:
            raise not_saved("the list of trusted folders cannot be saved in", draft.parent, error) from error

    def folders(self) -> list[str]:
        """Every trusted folder."""
        try:
            found = json.loads(read_regular(self._file))["folders"]
            if not isinstance(found, list):
                raise TypeError("`folders` is not a list")
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise NotPermitted(
                f"the list of trusted folders, {self._file}, cannot be read: {error.strerror}",
                advice=(f"inspect it: ls -l {self._file}",),
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{self._file} is damaged: {error}", advice=(f"remove it: rm {self._file}",)) from error
        return [str(folder) for folder in found]
