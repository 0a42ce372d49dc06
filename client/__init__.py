"""The native client: `Client` (blocking) and `AsyncClient` (asyncio or trio), the same by name, argument and error."""
