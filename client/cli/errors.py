"""What the command line itself raises; everything else comes from the client.

`WrongUsage` is exit code 2. The others are failures with a code of their own, exit code 1.
"""

from __future__ import annotations

import typer

from ...protocol.errors import TidelogError


class WrongUsage(typer.BadParameter):
    """The command as typed cannot mean anything; the message says what was expected and what was found."""

    def format_message(self) -> str:
        """Return the message alone: it is about the whole command, not about one value."""
        return self.message


class OutputClosed(Exception):
    """Whoever read standard output has gone, as after `| head`: nothing is wrong, and nothing more is said."""


class InputError(TidelogError):
    """A line of the input cannot be a message; the message names the line. The lines before it were sent."""

    code = "INVALID_INPUT"


class FileError(TidelogError):
    """A file, standard input or standard output cannot be read or written; the message has the system's reason."""

    code = "FILE_ERROR"


class AbortedError(TidelogError):
    """The question of a destructive command was not answered with yes."""

    code = "ABORTED"


class VerificationError(TidelogError):
    """A benchmark read back something else than it sent; the message counts what. Its figures are not shown."""

    code = "VERIFICATION_FAILED"
