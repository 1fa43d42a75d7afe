"""The shop: orders, their receipts, and a report."""
