"""A partitioned log broker that keeps time."""
