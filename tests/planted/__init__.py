"""Bugs that are planted on purpose, to see whether the suite finds them."""
