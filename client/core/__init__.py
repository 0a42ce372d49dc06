"""What the client decides, without sockets, clocks or threads: both flavours drive these objects."""
