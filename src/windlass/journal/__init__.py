"""Where events are kept: adapters of the `Journal` port, and the portable checkpoint files."""
