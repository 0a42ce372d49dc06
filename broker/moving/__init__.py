"""Moving a record from one log to another, so that exactly one copy is there after any crash; README.md says how."""
