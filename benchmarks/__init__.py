"""Benchmarks: ours and the peers', side by side, as ratios measured in the same run."""
