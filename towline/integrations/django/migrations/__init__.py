"""Django's migrations of the tables."""
