"""A worker in small: loads QuickJS, starts a ticker, locks itself in, and then does all that a worker has to do."""

from __future__ import annotations

import json
import sys
import threading

import wasmtime

from windlass.sandbox import quickjs
from windlass.sandbox.lockdown import lock_down

PAGES = 64
FAULTS = """(module
  (func (export "unreachable") unreachable)
  (memory 1)
  (func (export "beyond") (drop (i32.load (i32.const 100000000))))
  (func $deep (export "deep") (call $deep))
  (func (export "endless") (loop br 0)))"""


def ticking(engine: wasmtime.Engine) -> None:
    pause = threading.Event()
    while not pause.wait(0.002):
        engine.increment_epoch()


def instance(engine: wasmtime.Engine, module: wasmtime.Module) -> tuple[wasmtime.Store, wasmtime.Instance]:
    store = wasmtime.Store(engine)
    store.set_limits(memory_size=PAGES * 65536)
    store.set_epoch_deadline(1_000_000)
    linker = wasmtime.Linker(engine)
    for wanted in module.imports:
        assert isinstance(wanted.type, wasmtime.FuncType)
        answer = 0 if wanted.type.results else None
        linker.define_func(wanted.module, wanted.name or "", wanted.type, lambda *_, answer=answer: answer)
    return store, linker.instantiate(store, module)


def main() -> None:
    config = wasmtime.Config()
    config.epoch_interruption = True
    engine = wasmtime.Engine(config)
    module = wasmtime.Module.from_file(engine, str(quickjs.path()))
    faults = wasmtime.Module(engine, FAULTS)
    for each in (module, faults):
        instance(engine, each)
    threading.Thread(target=ticking, args=(engine,), daemon=True).start()
    print(json.dumps(lock_down()), flush=True)

    made = 0
    for _ in range(200):
        store, running = instance(engine, module)
        initialize = running.exports(store)["_initialize"]
        assert isinstance(initialize, wasmtime.Func)
        initialize(store)
        made += 1
    print(made, "instances", flush=True)

    memory = running.exports(store)["memory"]
    assert isinstance(memory, wasmtime.Memory)
    try:
        while True:
            memory.grow(store, 1)
    except wasmtime.WasmtimeError:
        print("memory refused at the limit" if memory.size(store) == PAGES else memory.size(store), flush=True)

    store, running = instance(engine, faults)
    for name in ("unreachable", "beyond", "deep", "endless"):
        function = running.exports(store)[name]
        assert isinstance(function, wasmtime.Func)
        store.set_epoch_deadline(2 if name == "endless" else 1_000_000)
        try:
            function(store)
        except wasmtime.Trap as trap:
            print(f"{name}: {str(trap).rpartition('wasm trap: ')[2].strip()}", flush=True)
    print("heard:", sys.stdin.readline().strip(), flush=True)


if __name__ == "__main__":
    main()
