"""Why a run has no figure."""


class VerificationError(Exception):
    """What was answered or read back is not what was sent: lost, repeated, reordered or changed."""


class NotInstalledError(Exception):
    """What is to be measured is not there; the message says how to install it."""
