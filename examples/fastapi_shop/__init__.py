"""A shop with FastAPI and SQLAlchemy's async sessions: an order and its jobs are one commit."""
