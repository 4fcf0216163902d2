"""One program: a table's changes on a real server, through the reader's code and the router's, to tenants.

After each statement every tenant's rows are compared. They are to be those of the source's for which MySQL says that the
tenant's condition is true, masked and named as its document says. An event that does not fit the rows that the tenant has (a
create of a row that it has, an update or delete of another one) is a difference too.
"""

import contextlib
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from libs.errors import HeadwaterError
from libs.mysql.column_type import parse_column_type
from libs.mysql.identifiers import quote_table
from libs.source.key_columns import KeyColumns
from libs.source.mysql.client import query
from libs.tenants.mask_keys import MaskKeys
from libs.types.table import TableId, TableSchema
from libs.types.tenant import FormatSettings, TenantSpec
from services.router.batches.batch_reading import form_of, read_changes
from services.router.delivery.deliver import deliver_batch
from services.router.delivery.delivery import Announced, BatchPlace, Delivery
from services.router.routes.book import RouteBook
from services.router.routes.match import MYSQL_FORM
from services.router.routes.topic_claims import TopicClaims
from tests.conftest import MysqlServer
from tests.fuzz.source.follower import Difference, canonical
from tests.fuzz.source.program import DATABASES, Program, Step
from tests.fuzz.source.trial import Counts, Trial, last_transaction
from tests.fuzz.views.conditions import mysqls_form
from tests.fuzz.views.statements import TABLE
from tests.fuzz.views.views import KEY, Names, View, is_compared, seen_name, seen_row
from tests.unit.router.batches import read_back

TABLE_ID: Final = TableId(database=DATABASES[0], table=TABLE)
_TEXTS: Final = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set")
_RENAMED: Final = re.compile(r"ALTER TABLE \w+ RENAME COLUMN `(.*)` TO `(.*)`")
_ERROR_NUMBER: Final = re.compile(r".*\(error (\d+)\)", re.DOTALL)
_LEAST: Final = {"before", "after", "source", "op", "ts_ms", "transaction"}


@dataclass
class ViewCounts(Counts):
    """Of views too."""

    judged: int = 0
    """Rows for which a condition was compared with MySQL's answer."""
    delivered: int = 0
    refused_views: Counter[str] = field(default_factory=Counter)
    not_judged: Counter[str] = field(default_factory=Counter)
    """Conditions for which MySQL has an error, by its number."""


@dataclass
class _Tenant:
    view: View
    rows: Counter[str] = field(default_factory=Counter)
    is_refused: bool = False
    is_blind: bool = False
    """MySQL does not evaluate its condition, or a mask's form is not known here."""


class ViewTrial(Trial):
    """A ``Trial`` that compares what tenants get."""

    def __init__(self, server: MysqlServer, program: Program, counts: ViewCounts) -> None:
        super().__init__(server, program.values, counts)
        self._counted = counts
        self._payloads: list[bytes] = []
        self.follower.on_batch = self._payloads.append
        if program.key:
            chosen = KeyColumns(tables=re.escape(str(TABLE_ID)), columns=re.escape(program.key))
            self.follower.key_columns = (chosen,)
        self._tenants = {
            f"t{number}": _Tenant(msgspec.json.decode(text, type=View)) for number, text in enumerate(program.tenants)
        }
        self._keys = tempfile.TemporaryDirectory(prefix="fuzz-views-")
        for name in self._tenants:
            (Path(self._keys.name) / name).mkdir()
            (Path(self._keys.name) / name / "pii").write_bytes(KEY)
        self._book = RouteBook(
            "fz",
            [
                TenantSpec(
                    tenant=name, sources=(each.view.selection,), format=FormatSettings(schemas=each.view.has_schemas)
                )
                for name, each in self._tenants.items()
            ],
            self._fetch,
            TopicClaims(),
            MaskKeys(Path(self._keys.name), {}),
        ).view()
        self._announced = Announced()
        self._form = MYSQL_FORM
        self._oracle = server.connect(
            charset="utf8mb4",
            init_command="SET time_zone = '+00:00', sql_mode = '', collation_connection = utf8mb4_0900_bin",
        )
        self._version = 0
        self._former: dict[str, tuple[str, ...]] = {}

    async def close(self) -> None:
        self._oracle.close()
        self._keys.cleanup()
        await super().close()

    def _fetch(self, table_id: TableId, version: int) -> TableSchema:
        for change in self.follower.history.changes:
            if change.schema is not None and (change.table_id, change.schema.version) == (table_id, version):
                return change.schema
        raise LookupError(f"{table_id} has no version {version}")

    async def _compare(self, step: Step) -> None:
        if renamed := _RENAMED.fullmatch(step.text):
            self._former[renamed[2]] = (renamed[1], *self._former.pop(renamed[1], ()))
        [(uuid, executed)] = query(self._admin, "SELECT @@server_uuid, @@GLOBAL.gtid_executed")
        if executed == self._executed:
            return
        self._executed = executed
        if last := last_transaction(uuid, executed):
            await self._guarded(lambda: self.follower.catch_up(last))
        self._judge_words()
        deliveries = [delivery for payload in self._payloads for delivery in self._delivered(payload)]
        self._payloads.clear()
        mirror = self.follower.mirror.get(TABLE_ID)
        if mirror is None:
            return
        schema = mirror.schema
        is_altered = schema.version != self._version
        self._version = schema.version
        if is_altered:
            with contextlib.suppress(Exception):  # a byte that is no text of its charset was reported
                mirror.rows, mirror.is_doubted = list(self._snapshot(schema)), False
        names = self._names(schema)
        for name, tenant in self._tenants.items():
            self._compare_tenant(name, tenant, schema, names, mirror.rows, deliveries, is_altered=is_altered)

    def _names(self, schema: TableSchema) -> Names:
        return {
            column.name: tuple(f"{TABLE_ID}.{name}" for name in (column.name, *self._former.get(column.name, ())))
            for column in schema.columns
        }

    def _delivered(self, payload: bytes) -> Iterator[Delivery]:
        try:
            place, changes = BatchPlace("headwater.changes.fz", 0, 0), read_changes(payload)
            self._form = form_of(changes.head)
            yield from deliver_batch(changes, self._book, self._announced, place, max_event_bytes=1_000_000)
        except Exception as error:
            raise Difference(f"the router halted: {type(error).__name__}: {error}") from error

    def _compare_tenant(
        self,
        name: str,
        tenant: _Tenant,
        schema: TableSchema,
        names: Names,
        source_rows: list[dict[str, Any]],
        deliveries: list[Delivery],
        *,
        is_altered: bool,
    ) -> None:
        refused = {
            each.target.tenant: each.reason
            for each in self._book.routes(TABLE_ID.database, TABLE_ID.table, schema.version, self._form).refused
        }
        if is_altered and name in refused:
            self._counted.refused_views[refused[name][:100]] += 1
        expected = None if name in refused else self._expected(tenant, schema, names, source_rows)
        is_new = is_altered or tenant.is_blind or expected is None
        tenant.is_blind = expected is None
        keys = [seen_name(tenant.view.selection, names[column][0]) for column in schema.key]
        for event in self._events(name, tenant, deliveries):
            if name in refused and not is_altered:
                raise Difference(f"{name}: an event though its view is refused: {event}")
            if not is_new:
                self._write(name, tenant, event, keys)
        if expected is None:
            return
        if not is_new and tenant.rows != expected:
            raise Difference(
                f"{name}: rows that it lacks {sorted((expected - tenant.rows).elements())}, rows that it may not have "
                f"{sorted((tenant.rows - expected).elements())}, by {tenant.view.conditions}"
            )
        tenant.rows = expected

    def _expected(
        self, tenant: _Tenant, schema: TableSchema, names: Names, rows: list[dict[str, Any]]
    ) -> Counter[str] | None:
        """None: it cannot be said."""
        selection, conditions = tenant.view.selection, tenant.view.conditions
        if not is_compared(selection, schema.columns, names):
            return None
        if not conditions:
            return Counter(canonical(seen_row(selection, schema.columns, names, row)) for row in rows)
        texts = {column.name for column in schema.columns if parse_column_type(column.source_type).name in _TEXTS}
        asked = " AND ".join(f"(({mysqls_form(each, texts)}\n) IS TRUE)" for each in conditions)
        try:
            answers = dict(query(self._oracle, f"SELECT id, {asked} FROM {quote_table(TABLE_ID)}"))
        except HeadwaterError as error:
            self._counted.not_judged[_ERROR_NUMBER.sub(r"\1", str(error))] += 1
            return None
        self._counted.judged += len(answers) * len(conditions)
        if set(answers) != {row["id"] for row in rows}:
            raise Difference(f"{TABLE_ID}: the reader gave {rows}, the server has {sorted(answers)}")
        return Counter(canonical(seen_row(selection, schema.columns, names, row)) for row in rows if answers[row["id"]])

    def _events(
        self, name: str, tenant: _Tenant, deliveries: list[Delivery]
    ) -> Iterator[tuple[dict[str, Any] | None, dict[str, Any]]]:
        """Key and event of each row."""
        for delivery in deliveries:
            topics = [target.topic.name for target in delivery.targets if target.tenant == name]
            if delivery.dead_letters and topics and delivery.reason:
                raise Difference(f"{name}: set aside without need: {delivery.reason}")
            if delivery.dead_letters or f"{name}.fz.{TABLE_ID}" not in topics:
                continue
            deleted: bytes | None = None
            for record in read_back(delivery.records):
                if record.value is None:
                    if deleted is None or record.key != deleted:
                        raise Difference(f"{name}: a tombstone of {record.key!r}, which no delete stands before")
                    deleted = None
                    continue
                if deleted is not None:
                    raise Difference(f"{name}: no tombstone after the delete of {deleted!r}")
                key, event = (None if not part else json.loads(part) for part in (record.key, record.value))
                if tenant.view.has_schemas:
                    key, event = None if key is None else key["payload"], event["payload"]
                deleted = record.key if event["op"] == "d" and record.key else None
                self._counted.delivered += 1
                yield key, event
            if deleted is not None:
                raise Difference(f"{name}: no tombstone after the delete of {deleted!r}")

    def _write(
        self, name: str, tenant: _Tenant, keyed: tuple[dict[str, Any] | None, dict[str, Any]], keys: list[str]
    ) -> None:
        key, event = keyed
        op, before, after = event["op"], event["before"], event["after"]
        if op == "t":
            tenant.rows.clear()
            return
        if not event.keys() >= _LEAST or (before is None) != (op in "cr") or (after is None) != (op == "d"):
            raise Difference(f"{name}: {op} has the parts {event}")
        row = after if after is not None else before
        if keys and key != {column: row[column] for column in keys}:
            raise Difference(f"{name}: the key {key} is not that of {row}")
        if before is not None:
            if not tenant.rows[canonical(before)]:
                raise Difference(f"{name}: {op} of a row that it does not have: {before}, by {tenant.view.conditions}")
            tenant.rows -= Counter([canonical(before)])
        if after is not None:
            tenant.rows[canonical(after)] += 1
