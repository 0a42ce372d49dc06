"""The client, against a scripted broker; every test body runs on the blocking client, asyncio and trio."""
