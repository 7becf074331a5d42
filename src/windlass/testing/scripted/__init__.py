"""The parts of a scripted model. Use it by way of `windlass.testing.ScriptedModel`."""
