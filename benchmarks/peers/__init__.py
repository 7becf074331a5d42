"""The peers' side of the benchmarks: other durable engines, doing the same work on the same disk; other JavaScript
engines, running the same programs.

environment.py   installs the peers, exact versions, into a folder of their own
run.py           runs one peer once, in a process of that environment: the only module the benchmark imports
bench_*.py       one peer each; these run in the peers' environment and know nothing of Windlass
measure.py       what the scripts share: the scenarios, the clock, the check of the result, the line printed
sandbox_*.py     one JavaScript engine each, asked line by line as long as it lives
sandboxed.py     what those share: the questions, the clock, the functions that programs call
talk.py          the other end of that line, and what the process behind it uses
"""
