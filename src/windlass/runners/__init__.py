"""Runtimes for agents: one file each behind the `Runner` port. None imports another."""
