"""What tests of the server share: see `server_process`."""

from server_process import serve, server

__all__ = ["serve", "server"]
