"""Stores of events: adapters of the `Journal` port, and the portable checkpoint files."""
