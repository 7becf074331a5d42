"""Network access: the addresses open to `http.*`, `search` and `browser.*`, and a client that reaches no other (H2).

`names.py` reads addresses, `guard.py` decides which may be reached. `transport.py` opens clients, `wire.py` connects
only to these; `exchange.py` follows redirects, deciding anew at each; `failures.py` puts failures into words.
"""

from windlass.tools.net.guard import AddressGuard, AddressRefused, NetworkTarget, Resolver
from windlass.tools.net.transport import SharedConnections, open_client

__all__ = ["AddressGuard", "AddressRefused", "NetworkTarget", "Resolver", "SharedConnections", "open_client"]
