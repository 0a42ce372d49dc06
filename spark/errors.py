"""What the connector refuses, besides the client's own errors."""

from __future__ import annotations

from ..client.errors import ClientError


class OptionError(ClientError, ValueError):
    """An option of the Spark data source is unknown, missing, or not what it may be; the message says what is."""

    code = "INVALID_OPTION"


class SchemaError(ClientError, ValueError):
    """A schema that a user gave to the Spark data source asks for columns or types that it does not have."""

    code = "INVALID_SCHEMA"


class DataLossError(ClientError):
    """Records that a Spark read has to return are gone or damaged; `failOnDataLoss=false` reads what is there."""

    code = "DATA_LOSS"


class RowError(ClientError, ValueError):
    """A row that a Spark task writes cannot be sent; the message names it. What the task sent before it stays."""

    code = "INVALID_ROW"
