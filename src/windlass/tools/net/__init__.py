"""The way out: what `http.*`, `search` and `browser.*` may reach, and a client that reaches nothing else (H2).

`names.py` reads addresses, `ranges.py` knows which of them are public, `rules.py` the user's lists, and `guard.py`
decides by all three. `transport.py` connects to what was decided about and to nothing else; `exchange.py` follows
redirects, deciding anew at each; `counted.py` tells how much it was; `failures.py` says in words what went
wrong on the way.
"""

from windlass.tools.net.guard import Guard, Refused, Resolver, Target
from windlass.tools.net.transport import Line, open_client

__all__ = ["Guard", "Line", "Refused", "Resolver", "Target", "open_client"]
