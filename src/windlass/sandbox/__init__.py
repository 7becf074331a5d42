"""Programs in a sandbox: QuickJS as WebAssembly under wasmtime, in worker processes that lock themselves in (G1, G2)."""
