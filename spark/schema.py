"""The columns of a read: those of Spark's Kafka source but timestampType, and the priority."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from .errors import OptionError, SchemaError
from .suggestion import suggestion

HEADERS = "headers"
DEFAULT_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")
ALL_COLUMNS = (*DEFAULT_COLUMNS, HEADERS, "priority")

TOPICS_TABLE = "topics"
"""`option("table", "topics")`: what the broker says about each partition of each topic."""


def message_fields() -> dict[str, StructField]:
    """Return every column of a message by its name."""
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    fields = (
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType(), nullable=False),
        StructField("partition", IntegerType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
        StructField("timestamp", TimestampType(), nullable=False),
        StructField(HEADERS, ArrayType(header)),
        StructField("priority", ByteType(), nullable=False),
    )
    return {field.name: field for field in fields}


def topics_schema() -> StructType:
    """Return the columns of the table of topics."""
    damaged = StructType([StructField("start", LongType(), False), StructField("end", LongType(), False)])
    kinds: tuple[tuple[str, DataType, bool], ...] = (
        ("topic", StringType(), False),
        ("partition", IntegerType(), False),
        ("start_offset", LongType(), False),
        ("end_offset", LongType(), False),
        ("written_offset", LongType(), False),
        ("synced_offset", LongType(), False),
        ("bytes", LongType(), False),
        ("segments", IntegerType(), False),
        ("fenced", BooleanType(), False),
        ("damaged", ArrayType(damaged, containsNull=False), False),
        ("topic_id", LongType(), False),
        ("topic_count", IntegerType(), False),
        ("created", TimestampType(), False),
        ("settings", MapType(StringType(), StringType()), False),
    )
    return StructType([StructField(name, kind, nullable) for name, kind, nullable in kinds])


def schema_of(table: str | None, columns: Sequence[str]) -> StructType:
    """Return what a read yields unless the user says it with `.schema()`."""
    if table is not None:
        return topics_schema()
    fields = message_fields()
    return StructType([fields[name] for name in columns])


def check_columns(columns: Sequence[str]) -> None:
    """Raise OptionError for a name that is no column."""
    for name in columns:
        if name not in ALL_COLUMNS:
            hint = suggestion(name, {each: each for each in ALL_COLUMNS})
            raise OptionError(f"columns: unknown column {name!r}{hint}")


def check_schema(schema: StructType, known: StructType, named: Sequence[str]) -> None:
    """Raise SchemaError unless a schema is some of the known columns, in any order, by their types.

    `named` are the columns that the options name, if they do: then the two agree.
    """
    own_fields = {field.name: field for field in known.fields}
    for field in schema.fields:
        own = own_fields.get(field.name)
        if own is None:
            raise SchemaError(f"schema: unknown column {field.name!r}, expected some of {', '.join(own_fields)}")
        if not _same_type(field.dataType, own.dataType):
            raise SchemaError(
                f"schema: expected {field.name} as {own.dataType.simpleString()}, found"
                f" {field.dataType.simpleString()}: read it so, and cast it"
            )
        if own.nullable and not field.nullable:
            raise SchemaError(f"schema: {field.name} may be null, found NOT NULL")
    names = [field.name for field in schema.fields]
    if not names:
        raise SchemaError("schema: expected at least one column, found none")
    if len(set(names)) < len(names):
        raise SchemaError(f"schema: expected each column once, found {', '.join(names)}")
    if named and set(named) != set(names):
        raise SchemaError(f"schema: expected the columns of the options, {', '.join(named)}, found {', '.join(names)}")


def _same_type(found: DataType, own: DataType) -> bool:
    """Whether a type is the same, or says of less that it cannot be null."""
    if isinstance(found, ArrayType) and isinstance(own, ArrayType):
        return found.containsNull >= own.containsNull and _same_type(found.elementType, own.elementType)
    if isinstance(found, StructType) and isinstance(own, StructType):
        return len(found.fields) == len(own.fields) and all(
            mine.name == theirs.name and mine.nullable >= theirs.nullable and _same_type(mine.dataType, theirs.dataType)
            for mine, theirs in zip(found.fields, own.fields, strict=True)
        )
    return found == own
