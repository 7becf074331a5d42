"""Programs in a sandbox: QuickJS as WebAssembly under wasmtime, in workers that lock themselves in (G1, G2)."""
