"""The tests of the winch, without any test runner."""

import sys

sys.path.insert(0, ".")
from winch import metres

for turns, expected in ((0, 0), (4, 2.0), (10, 5.0)):
    found = metres(turns)
    if found != expected:
        sys.exit(f"metres({turns}) is {found}, expected {expected}")
print("3 tests passed")
