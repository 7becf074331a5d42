"""The command line: turns commands into calls of the engine, and results into text or JSON."""
