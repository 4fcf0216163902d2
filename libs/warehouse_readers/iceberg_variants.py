"""Iceberg tables with VARIANT columns for pyiceberg, which has no such type (0.12): it is given the column's two parts.

A VARIANT is a group of two binary columns in its files, which bear no field numbers there. So the table's metadata is read with
a struct of them in the type's place, and with a name mapping, by which files without numbers are read (Iceberg specification,
"Column Projection").
"""

import json
from collections import Counter
from typing import Any, Final

from pydantic import ValidationError
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.io import load_file_io
from pyiceberg.serializers import Compressor
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil
from sqlalchemy import select
from sqlalchemy.orm import Session

from libs.errors import HeadwaterError
from libs.types.warehouse import WarehouseTable

_VARIANT: Final = "variant"
_PARTS: Final = ("metadata", "value")
_FIRST_PART_ID: Final = 1_000_000_000
"""Far from the columns', and below those that Iceberg keeps for itself."""
_ROW_NUMBERS: Final = {2147483540: ["_row_id"], 2147483539: ["_last_updated_sequence_number"]}
"""Which files of format 3 may hold besides."""
_NAME_MAPPING: Final = "schema.name-mapping.default"


class VariantsUnreadable(HeadwaterError):
    """A table with VARIANT columns cannot be read without Spark; the message has the reason and the remedy."""


def has_variants(error: Exception) -> bool:
    """Whether pyiceberg found a table's metadata wrong for a VARIANT column; ``error``: its own, or Pydantic's."""
    found = error if isinstance(error, ValidationError) else error.__cause__
    return isinstance(found, ValidationError) and any(each["input"] == _VARIANT for each in found.errors())


def load_with_parts(catalog: Any, place: WarehouseTable) -> Table:
    """The table as it is now, each VARIANT a struct of its parts.

    Raises:
        VariantsUnreadable: the catalog gives pyiceberg no file to read instead, or a name was two columns' one after the other.
    """
    if not isinstance(catalog, SqlCatalog):
        raise VariantsUnreadable(
            f"{place}: has VARIANT columns (sink.json_as_variant), which pyiceberg reads by a SQL catalog alone; ask Spark"
        )
    location = _metadata_location(catalog, place)
    io = load_file_io(catalog.properties, location)
    with io.new_input(location).open() as stream:
        content = Compressor.get_compressor(location).stream_decompressor(stream).read()
    metadata = with_parts(json.loads(content), str(place))
    return Table(place.identifier, TableMetadataUtil.parse_obj(metadata), location, io, catalog)


def with_parts(metadata: dict[str, Any], table: str) -> dict[str, Any]:
    """``metadata`` (Iceberg specification, "Table Metadata"), changed in place."""
    names: dict[int, list[str]] = {}
    variants = set()
    for field in (field for schema in metadata["schemas"] for field in schema["fields"]):
        known = names.setdefault(field["id"], [])
        if field["name"] not in known:
            known.append(field["name"])
        if field["type"] == _VARIANT:
            variants.add(field["id"])
            field["type"] = {"type": "struct", "fields": _parts(field["id"])}
    times = Counter(name for known in names.values() for name in known)
    if shared := [name for name, count in times.items() if count > 1]:
        raise VariantsUnreadable(
            f"{table}: has VARIANT columns (sink.json_as_variant), beside which pyiceberg knows the others by names alone, "
            f"and {shared[0]} was the name of two, one after the other: ask Spark"
        )
    mapping = [
        {"field-id": number, "names": known, "fields": _mapped_parts(number) if number in variants else []}
        for number, known in (names | _ROW_NUMBERS).items()
    ]
    metadata["properties"][_NAME_MAPPING] = json.dumps(mapping)
    return metadata


def _parts(number: int) -> list[dict[str, Any]]:
    return [
        {"id": _FIRST_PART_ID + len(_PARTS) * number + place, "name": name, "required": True, "type": "binary"}
        for place, name in enumerate(_PARTS)
    ]


def _mapped_parts(number: int) -> list[dict[str, Any]]:
    return [{"field-id": part["id"], "names": [part["name"]]} for part in _parts(number)]


def _metadata_location(catalog: SqlCatalog, place: WarehouseTable) -> str:
    wanted = select(IcebergTables.metadata_location).where(
        IcebergTables.catalog_name == catalog.name,
        IcebergTables.table_namespace == ".".join(place.namespace),
        IcebergTables.table_name == place.name,
    )
    with Session(catalog.engine) as session:
        location = session.scalars(wanted).one()
    assert location is not None  # of a table that was found
    return location
