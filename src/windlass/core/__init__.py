"""The pure rules: events fold to a state, and `decide` turns the state into commands. No I/O, no clock."""
