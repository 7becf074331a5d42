"""The pure rules: events fold to a state, and the state decides what to do next. No I/O, no clock."""
