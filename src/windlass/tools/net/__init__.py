"""The way out: what `http.*`, `search` and `browser.*` may reach, and a client that reaches nothing else (H2).

`names.py` reads addresses, `guard.py` decides which may be reached. `transport.py` opens clients, `wire.py` connects
to what was decided and to nothing else; `exchange.py` follows redirects, deciding anew at each; `failures.py` says
in words what went wrong on the way.
"""

from windlass.tools.net.guard import AddressGuard, AddressRefused, NetworkTarget, Resolver
from windlass.tools.net.transport import SharedConnections, open_client

__all__ = ["AddressGuard", "AddressRefused", "NetworkTarget", "Resolver", "SharedConnections", "open_client"]
