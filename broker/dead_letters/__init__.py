"""Dead letters: messages that a group gave up on, kept as copies in a topic of their own; brought back, or purged."""
