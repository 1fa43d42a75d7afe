"""A shop with Flask and SQLAlchemy: an order and its jobs are one commit."""
