"""`python -m tests.docs.reference` writes the pages of the reference that are made from code."""

from tests.docs.reference import written

written.write()
