"""Arrow schemas as Spark's. The types are those of `model.schema`, each of which has exactly one counterpart.

Everything is nullable for Spark, as in every file that Spark reads itself: that a column is never null is checked when
records enter, and nothing in a query should depend on it.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from millpond.errors import InvalidSchema
from millpond.model.schema import TIMESTAMP

_PLAIN: dict[pa.DataType, DataType] = {
    pa.int8(): ByteType(),
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.bool_(): BooleanType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
    TIMESTAMP: TimestampType(),
}


def spark_schema(schema: pa.Schema) -> StructType:
    return StructType([StructField(field.name, spark_type(field.type)) for field in schema])


def spark_type(kind: pa.DataType) -> DataType:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pa.types.is_decimal128(kind):
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_list(kind):
        return ArrayType(spark_type(kind.value_type))
    if pa.types.is_map(kind):
        return MapType(spark_type(kind.key_type), spark_type(kind.item_type))
    if pa.types.is_struct(kind):
        return StructType([StructField(field.name, spark_type(field.type)) for field in kind])
    raise InvalidSchema(f"{kind} has no counterpart in Spark", hint="streams refuse it at creation")


_ARROW: dict[DataType, pa.DataType] = {spark: arrow for arrow, spark in _PLAIN.items()}


def arrow_type(kind: DataType) -> pa.DataType | None:
    """The type in which a column of Spark's has an order that indexes know; None if it has none. Text with a collation
    has another order."""
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale) if kind.scale >= 0 else None
    return _ARROW.get(kind)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Those columns that indexes can be about."""
    found = ((field.name, arrow_type(field.dataType)) for field in schema)
    return pa.schema([(name, kind) for name, kind in found if kind is not None])
