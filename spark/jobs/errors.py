"""What jobs refuse, besides what reads and the client do."""

from __future__ import annotations

from ...client.errors import ClientError


class JobBusyError(ClientError):
    """Another run works in the same folder, or with the same progress file; wait until it has ended."""

    code = "JOB_BUSY"


class JobStateError(ClientError):
    """What a job kept (manifest, plan, progress) is damaged, or of another topic, log or job; the message tells."""

    code = "JOB_STATE"


class JobFailedError(ClientError):
    """Spark gave a job up after its attempts; the message has the cause. Running the job again goes on where it was."""

    code = "JOB_FAILED"


class NotInstalledError(ClientError):
    """PySpark or Java is missing; the message says how to install it."""

    code = "NOT_INSTALLED"
