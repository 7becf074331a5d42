"""Plans: read, check, order and template them."""
