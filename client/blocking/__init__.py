"""The blocking client: `runtime` is written by hand on poll, everything else is generated from `aio`."""
