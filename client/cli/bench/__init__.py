"""`tidelog bench`: how fast a running broker is, with every reply verified and every message read back."""
