"""JSON Schema in plain words: whether a value fits, and whether a schema can be used at all."""
