"""QuickJS in WebAssembly: one `Machine` for each worker process, one `Guest` for each run of a program.

A machine sets up an interpreter once, with the prelude in it, and keeps an image of its memory; a guest begins as a
copy of that image, which takes a fraction of a millisecond and gives every program the same start. A guest cannot
reach the worker: the few functions that the interpreter imports return constants.

wasmtime's Python classes look up and check the type of a function at each call, and list all 300 exports of an instance
to find one. Here its C API is called directly, as those classes do.

To compile QuickJS for this processor is a second of work, done once and kept in a folder of the user's own. The cached
file is machine code that a worker runs, so it is used only if nobody else could have written it: the file and its
folder must belong to this user and to nobody else's group. Its name says what it was made from.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import wasmtime
from wasmtime import _bindings
from wasmtime import _ffi as ffi

from windlass.sandbox import quickjs

__all__ = ["Guest", "Machine", "Trapped", "load"]

STACK: Final = 384 * 1024
"""Bytes that JavaScript may use of the interpreter's own stack: so few that its own error comes before the trap."""
NATIVE_STACK: Final = 2 * 1024 * 1024
"""Bytes of the process' stack that WebAssembly may use, the most that wasmtime allows."""
PAGE: Final = 65536
CHUNK: Final = 4096
"""The image is kept without the pieces of this many bytes that are all zero."""
COMPILE_ONLY: Final = 1 << 5
"""QuickJS' flag for text that is read and not run."""
RESERVED: Final = 1024 * 1024 * 1024
"""Bytes of address space set aside for each memory, so that it grows without being moved."""

_HOOKS = ("setup", "start", "arrive", "take", "drain", "result")
_VALUES = ffi.wasmtime_val_raw * 8
_call = _bindings._wasmtime_func_call_unchecked


class Trapped(Exception):
    """The guest was ended from outside its own rules. `reason` is wasmtime's name for it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def configured() -> wasmtime.Engine:
    config = wasmtime.Config()
    config.epoch_interruption = True
    config.max_wasm_stack = NATIVE_STACK
    config.cranelift_opt_level = "speed"
    config.memory_reservation = RESERVED
    config.parallel_compilation = False  # a thread pool would be there when the process locks itself in
    return wasmtime.Engine(config)


class Machine:
    """The interpreter, compiled and warmed up."""

    def __init__(self, engine: wasmtime.Engine, module: wasmtime.Module) -> None:
        self.engine = engine
        self.unhandled: Callable[[bool], None] = lambda handled: None
        """Called with False for a rejected promise without a handler, and with True when it gets one after all."""
        linker = wasmtime.Linker(engine)
        for wanted in module.imports:
            assert isinstance(wanted.type, wasmtime.FuncType)
            linker.define_func(wanted.module, str(wanted.name), wanted.type, self._import(str(wanted.name)))
        self._prepared = linker.instantiate_pre(module)
        self.nothing = 0
        """The number of `undefined` in every guest."""
        self._image, self._length, self.hooks = self._warm_up()

    def guest(self, memory: int) -> Guest:
        """Make a new guest with at most `memory` bytes. Raises MemoryError if it cannot begin with so few."""
        if memory < self._length:
            raise MemoryError
        guest = Guest(self, self._instance(memory))
        missing = self._length - guest.size
        if missing > 0:
            guest.grow(missing // PAGE)
        for offset, piece in self._image:
            guest.write(offset, piece)
        return guest

    def _import(self, name: str) -> Callable[..., int | None]:
        """Return an import of the interpreter: a function that does nothing, but for the note of rejected promises."""
        if name == "host_promise_rejection":

            def rejected(promise: int, reason: int, handled: int) -> None:
                self.unhandled(bool(handled))

            return rejected
        return lambda *_: 0

    def _instance(self, memory: int) -> tuple[wasmtime.Store, wasmtime.Instance]:
        store = wasmtime.Store(self.engine)
        store.set_limits(memory_size=memory, instances=1, memories=1)
        store.set_epoch_deadline(1)
        return store, self._prepared.instantiate(store)

    def _warm_up(self) -> tuple[list[tuple[int, bytes]], int, dict[str, int]]:
        guest = Guest(self, self._instance(RESERVED))
        for name in ("_initialize", "qjs_init"):
            guest.call(name)
        guest.call("qjs_set_max_stack_size", STACK)
        guest.call("qjs_set_promise_rejection_handler", 1)
        prelude = (Path(__file__).parent / "prelude.js").read_text()
        made = guest.evaluate(prelude, "prelude.js")
        if guest.call("qjs_is_exception", made):
            raise RuntimeError(f"the prelude does not run: {guest.text_of(guest.call('qjs_get_exception'), 4096)}")
        hooks = {name: guest.member(made, name) for name in _HOOKS}
        self.nothing = guest.call("qjs_get_undefined")
        whole = guest.read(0, guest.size)
        pieces = ((offset, whole[offset : offset + CHUNK]) for offset in range(0, len(whole), CHUNK))
        return _joined([(offset, piece) for offset, piece in pieces if any(piece)]), len(whole), hooks


def _joined(pieces: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Neighbouring pieces as one."""
    joined: list[tuple[int, list[bytes]]] = []
    end = -1
    for offset, piece in pieces:
        if offset != end:
            joined.append((offset, []))
        joined[-1][1].append(piece)
        end = offset + len(piece)
    return [(offset, b"".join(parts)) for offset, parts in joined]


class Guest:
    """One interpreter with one program in it. Values in it are named by numbers, as QuickJS gives them."""

    def __init__(self, machine: Machine, made: tuple[wasmtime.Store, wasmtime.Instance]) -> None:
        self._machine = machine
        self._store, self._instance = made
        self._context: Any = self._store._context()
        self._values = _VALUES()
        self._functions: dict[str, Any] = {}
        self._trap = ctypes.POINTER(ffi.wasm_trap_t)()
        self._memory = ctypes.byref(self._export("memory").memory)

    def close(self) -> None:
        """Free the guest's memory at once, without waiting for garbage collection."""
        self._store.close()

    # -- WebAssembly -----------------------------------------------------------------------------

    def _export(self, name: str) -> Any:
        item = ffi.wasmtime_extern_t()
        raw = name.encode()
        instance = ctypes.byref(self._instance._instance)
        if not ffi.wasmtime_instance_export_get(self._context, instance, raw, len(raw), ctypes.byref(item)):
            raise RuntimeError(f"this quickjs.wasm has no {name}")
        return item.of

    def call(self, name: str, *given: int) -> int:
        """Call an exported function of whole numbers."""
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = ctypes.byref(self._export(name).func)
        values = self._values
        for index, value in enumerate(given):
            values[index].i32 = value
        # A delivered result makes half a dozen of these calls, so their objects are made once and reused.
        error = _call(self._context, function, values, len(given) or 1, ctypes.byref(self._trap))
        if error:
            raise wasmtime.WasmtimeError._from_ptr(error)
        if self._trap:
            trap, self._trap = wasmtime.Trap._from_ptr(self._trap), ctypes.POINTER(ffi.wasm_trap_t)()
            raise Trapped(_reason(trap))
        return int(values[0].i32) & 0xFFFFFFFF

    def allow_one_epoch(self) -> None:
        """Let the next tick of the engine's epoch end the guest."""
        self._store.set_epoch_deadline(1)

    @property
    def size(self) -> int:
        return int(ffi.wasmtime_memory_data_size(self._context, self._memory))

    def grow(self, pages: int) -> None:
        before = ctypes.c_uint64()
        error = ffi.wasmtime_memory_grow(self._context, self._memory, pages, ctypes.byref(before))
        if error:
            raise wasmtime.WasmtimeError._from_ptr(error)

    def read(self, offset: int, length: int) -> bytes:
        self._within(offset, length)
        return ctypes.string_at(self._base + offset, length)

    def write(self, offset: int, data: bytes) -> None:
        self._within(offset, len(data))
        ctypes.memmove(self._base + offset, data, len(data))

    @property
    def _base(self) -> int:
        return int(ctypes.cast(ffi.wasmtime_memory_data(self._context, self._memory), ctypes.c_void_p).value or 0)

    def _within(self, offset: int, length: int) -> None:
        if not 0 <= offset <= offset + length <= self.size:
            raise Trapped("a pointer out of its memory")

    # -- JavaScript ------------------------------------------------------------------------------

    def hook(self, name: str, *given: int) -> int:
        """Call one of the prelude's own functions; gives its value, which may be an exception."""
        nothing = self._machine.nothing
        if not given:
            return self.call("qjs_call", self._machine.hooks[name], nothing, 0, 0)
        argv = self._room(4 * len(given))
        self.write(argv, b"".join(value.to_bytes(4, "little") for value in given))
        try:
            return self.call("qjs_call", self._machine.hooks[name], nothing, len(given), argv)
        finally:
            self.call("wasm_free", argv)

    def evaluate(self, source: str, name: str, *, run: bool = True) -> int:
        """The value of a script, which may be an exception. If it is not run, only its syntax can be one."""
        raw, called = source.encode(), name.encode()
        where, label = self._place(raw), self._place(called)
        value = self.call("qjs_eval", where, len(raw), label, 0 if run else COMPILE_ONLY)
        self.call("wasm_free", where)
        self.call("wasm_free", label)
        return value

    def string(self, data: bytes) -> int:
        where = self._place(data)
        value = self.call("qjs_new_string", where, len(data))
        self.call("wasm_free", where)
        return value

    def member(self, value: int, name: str) -> int:
        where = self._place(name.encode())
        found = self.call("qjs_get_prop_string", value, where)
        self.call("wasm_free", where)
        return found

    def text_of(self, value: int, most: int) -> str | None:
        """The value as text; None if it has more than `most` bytes, of which none is looked at."""
        raw = self.bytes_of(value, most)
        return None if raw is None else raw.decode("utf-8", "replace")

    def bytes_of(self, value: int, most: int) -> bytes | None:
        room = self._room(4)
        where = self.call("qjs_get_string_len", value, room)
        if not where:  # only texts are asked for theirs: what is missing is room for the copy
            raise MemoryError
        length = int.from_bytes(self.read(room, 4), "little")
        raw = self.read(where, length) if length <= most else None
        self.call("qjs_free_cstring", where)
        self.call("wasm_free", room)
        return raw

    def free(self, value: int) -> None:
        self.call("qjs_free_value", value)

    def _place(self, data: bytes) -> int:
        """A copy in its memory, with a zero behind it."""
        where = self._room(len(data) + 1)
        self.write(where, data + b"\0")
        return where

    def _room(self, length: int) -> int:
        where = self.call("wasm_malloc", length)
        if not where:
            raise MemoryError
        return where


def _reason(trap: wasmtime.Trap) -> str:
    code = trap.trap_code
    return code.name.lower() if code is not None else "trap"


def load(cache: Path) -> tuple[wasmtime.Engine, wasmtime.Module]:
    """Load the module from `cache`; if it is not there, compile it and save it there."""
    engine = configured()
    file = cache / f"quickjs-{_made_from()}.cwasm"
    if _ours(cache) and _ours(file):
        try:
            return engine, wasmtime.Module.deserialize(engine, file.read_bytes())
        except wasmtime.WasmtimeError:
            file.unlink(missing_ok=True)  # of another processor, or damaged: it is made anew
    module = wasmtime.Module(engine, quickjs.path().read_bytes())
    _keep(file, bytes(module.serialize()))
    return engine, module


def _made_from() -> str:
    told = f"{quickjs.SHA256} {_wasmtime_version()} {platform.machine()}"
    settings = Path(__file__).with_name("machine.py").read_bytes()  # what it is compiled with stands there
    return hashlib.sha256(told.encode() + settings).hexdigest()[:16]


def _wasmtime_version() -> str:
    """The version of wasmtime. The name of a folder has it; `importlib.metadata` is a fifth of a worker's start."""
    folders = Path(wasmtime.__file__).parents[1].glob("wasmtime-*.dist-info")
    if (found := next(folders, None)) is not None:
        return found.name
    from importlib.metadata import version

    return version("wasmtime")


def _ours(path: Path) -> bool:
    try:
        seen = path.lstat()
    except OSError:
        return False
    return seen.st_uid == os.geteuid() and not seen.st_mode & 0o022 and not stat.S_ISLNK(seen.st_mode)


def _keep(file: Path, content: bytes) -> None:
    """Write the cached file. A folder that cannot be written is no error: it costs a second each time."""
    draft = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as out:
            out.write(content)
        draft.replace(file)
    except OSError:
        draft.unlink(missing_ok=True)
