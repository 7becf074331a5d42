"""Tools that steps can use: adapters of the `Tool` port, and the registry that finds them."""
