"""`--install-completion` and `--show-completion`: let the user's shell complete commands, options and names."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from windlass.errors import UsageError

__all__ = ["completion_script", "install_completion"]

_READ_FROM = {
    "bash": (".bash_completions/windlass.sh", ".bashrc", "source ~/.bash_completions/windlass.sh"),
    "zsh": (".zfunc/_windlass", ".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
    "fish": (".config/fish/completions/windlass.fish", "", ""),
}
"""By shell: the script's file, and the file of settings with the line that reads it. Fish finds it by itself."""


def completion_script(root: click.Command) -> str:
    """The script for the user's shell."""
    return _script(root, _shell())


def install_completion(root: click.Command) -> Path:
    """Write the script where the user's shell reads it; returns its file."""
    shell = _shell()
    file, settings, line = _READ_FROM[shell]
    home = Path.home()
    target = home / file
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_script(root, shell))
        if settings:
            with (home / settings).open("a+") as stream:
                stream.seek(0)
                if line not in stream.read():
                    stream.write(f"\n{line}\n")
    except OSError as error:
        raise UsageError(
            f"{error.filename} cannot be written: {error.strerror}",
            advice=("print the script, and save it where your shell reads it: windlass --show-completion",),
        ) from error
    return target


def _shell() -> str:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in _READ_FROM:
        raise UsageError(
            f"no completion for the shell {name or 'of an empty $SHELL'}: only bash, zsh and fish are supported",
            advice=("name your shell: SHELL=bash windlass --show-completion",),
        )
    return name


def _script(root: click.Command, shell: str) -> str:
    kind = get_completion_class(shell)
    assert kind is not None
    return kind(root, {}, "windlass", "_WINDLASS_COMPLETE").source()
