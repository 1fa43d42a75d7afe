"""A small Django project, in which the contract of Django's tasks is put to the test."""
