"""Towline inside the frameworks and libraries of others: a module each, imported by who uses it."""
