"""The peers' side of the benchmarks: other durable engines, doing the same work on the same disk.

environment.py   installs the peers, exact versions, into a folder of their own
run.py           runs one peer once, in a process of that environment: the only module the benchmark imports
bench_*.py       one peer each; these run in the peers' environment and know nothing of Windlass
measure.py       what the scripts share: the scenarios, the clock, the check of the result, the line printed
"""
