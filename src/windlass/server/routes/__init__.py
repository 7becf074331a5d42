"""The routes of the API, a module for each group. They translate requests into words to the engine."""
