"""Tools out of Python files that a plan names."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path

from windlass.errors import UsageError
from windlass.tools.function import FunctionTool

__all__ = ["tools_in"]


def tools_in(path: Path) -> list[FunctionTool]:
    """Run the file and collect what it decorated with `@tool`. Its folder must be trusted by now."""
    name = "windlass_tools_" + hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()  # before it runs: an edit meanwhile counts as a change
        spec.loader.exec_module(module)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:  # somebody's module may raise anything while it is imported
        line = _line_in(error, path)
        place = f"{path}:{line}" if line else str(path)
        raise UsageError(f"{place}: {type(error).__name__}: {error}") from error
    found = [value for value in vars(module).values() if isinstance(value, FunctionTool)]
    if not found:
        raise UsageError(
            f"{path} has no tools in it",
            advice=("decorate a function: from windlass import tool, then @tool",),
        )
    for each in found:
        each.file_hash = digest
    return found


def _line_in(error: BaseException, path: Path) -> int | None:
    if isinstance(error, SyntaxError):
        return error.lineno
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
