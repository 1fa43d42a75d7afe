"""Commands of manage.py, by their names."""
