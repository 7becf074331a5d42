"""What a scripted model is made of. Use it by way of `windlass.testing.ScriptedModel`."""
