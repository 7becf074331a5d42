"""The imperative shell: drives executions with the pure core, through ports, knowing no adapter."""
