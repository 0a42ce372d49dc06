"""What a DataFrame that is written may have: which columns, of which types."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from .errors import OptionError, SchemaError
from .options import WriteOptions

VALUE = "value"
TOPIC = "topic"
PARTITION = "partition"
PRIORITY = "priority"

_TEXT = (BinaryType, StringType)
_NUMBERS = (ByteType, ShortType, IntegerType)
_HEADERS = "array<struct<key:string,value:binary>>"

_COLUMNS: Mapping[str, tuple[str, tuple[type[DataType], ...]]] = {
    "key": ("binary or string", _TEXT),
    VALUE: ("binary or string", _TEXT),
    "headers": (_HEADERS, ()),
    PRIORITY: ("tinyint, smallint or int", _NUMBERS),
    PARTITION: ("tinyint, smallint or int", _NUMBERS),
    TOPIC: ("string", (StringType,)),
    "timestamp": ("timestamp", (TimestampType,)),
    "dedup_id": ("binary or string", _TEXT),
}
"""Each column that may be written: its types in words, and by their classes."""


def check_sink_schema(options: WriteOptions, schema: StructType) -> None:
    """Raise SchemaError that names the column, what was expected and what was found; OptionError where nothing says
    which topic is meant."""
    names = [field.name for field in schema.fields]
    for field in schema.fields:
        if field.name not in _COLUMNS:
            raise SchemaError(_unknown(field.name))
        words, kinds = _COLUMNS[field.name]
        if not (isinstance(field.dataType, kinds) if kinds else _is_headers(field.dataType)):
            raise SchemaError(
                f"column {field.name}: expected {words}, found {field.dataType.simpleString()}: cast it first"
            )
    if len(set(names)) < len(names):
        raise SchemaError(f"expected each column once, found {', '.join(names)}")
    if VALUE not in names:
        raise SchemaError(f"column value: expected one of binary or string, found only {', '.join(names) or 'none'}")
    if options.topic is None and TOPIC not in names:
        raise OptionError(f'expected option("topic", ...) or a column topic, found only columns {", ".join(names)}')
    if options.partitioner == "source" and PARTITION not in names:
        raise OptionError(f"partitioner: source needs a column partition, found only columns {', '.join(names)}")


def _unknown(name: str) -> str:
    nearest = get_close_matches(name.lower(), _COLUMNS, n=1)
    hint = f"do you mean {nearest[0]}?" if nearest else f"expected some of {', '.join(_COLUMNS)}"
    return f"column {name}: a message has none such, {hint}; select what is to be written"


def _is_headers(found: DataType) -> bool:
    if not isinstance(found, ArrayType) or not isinstance(found.elementType, StructType):
        return False
    fields = found.elementType.fields
    return (
        [field.name for field in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, BinaryType | StringType)
    )
