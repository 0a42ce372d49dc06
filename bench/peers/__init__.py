"""What a user would pick instead, measured beside us: a driver for each peer, with its real server."""
