"""Migrations of the contract's own table."""
