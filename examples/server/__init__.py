"""A small server over an output head: ``python -m server`` in the folder examples/ (see README.md)."""
