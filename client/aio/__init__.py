"""The client under asyncio and trio, written by hand; `blocking` is generated from it."""
