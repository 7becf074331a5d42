"""The other driver: Temporal places attempts on workers, and the journal in PostgreSQL holds the truth."""
