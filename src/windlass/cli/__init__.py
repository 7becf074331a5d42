"""The command line: translates what is typed into calls of the engine, and what comes back into text or JSON."""
