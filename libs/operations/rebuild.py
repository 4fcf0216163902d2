"""A table of a tenant's as its source had it at a past moment, built from its log beside it: ``headwater rebuild``.

The work is a Spark job of its own (``spark.jobs.rebuild``, ADR 23): it reads the log as of one snapshot and makes one new
table, so that neither the tenant's stream nor the stack is needed or disturbed.
"""

import datetime
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from libs.errors import HeadwaterError, InvalidSettings
from libs.mesh.processes import PYTHON_ENVIRON, session_settings
from libs.mesh.sink_view import SinkView
from libs.mysql.binlog_position import rank_of_place
from libs.mysql.gtid import GtidSet
from libs.servers.process import last_lines
from libs.setup.spark_toolchain import find_toolchain
from libs.sink_state.progress import TableProgress
from libs.sink_state.rebuild import Moment, RebuildSettings, Rebuilt
from libs.types.order import EventOrder
from libs.types.tenant import SinkMode, TenantSpec

_ORDER: Final = re.compile(r"\d+\.\d+\.\d+")
_GTID: Final = re.compile(r"\s*[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-")
_PLACE: Final = re.compile(r"([^:\s]+\.\d+):(\d+)")
_NAME: Final = re.compile(r"[A-Za-z0-9_$-]+")
_EXIT_MISTAKE: Final = 2
_LOG: Final = "rebuild.log"

OnProgress = Callable[[str], None]


class RebuildFailed(HeadwaterError):
    """The job ended without a table; its log has the reason. Nothing was written: call it again."""


def parse_moment(text: str, table: TableProgress) -> Moment:
    """A time in ISO's form, without a zone this machine's; an order as ``headwater status`` shows it (``0.4711.3``); or a place
    in MySQL's log: the whole of ``gtid_executed`` then, or, of a server without GTIDs, ``binlog.000042:157``. ``table``: how
    far the log of changes has got.

    Raises:
        InvalidSettings: it is none of these, or none that the table's source has.
    """
    text = "".join(text.split()) if _GTID.match(text) else text
    if _ORDER.fullmatch(text):
        return Moment(order=EventOrder.from_sort_key(text).sort_key())
    if _GTID.match(text) or _PLACE.fullmatch(text):
        return Moment(order=_order_of_place(text, table))
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidSettings(
            "--as-of",
            [
                f"{text!r} is no moment: write 2026-11-21T10:00:00+00:00, an order such as 0.4711.3, gtid_executed as it was "
                "then, or binlog.000042:157"
            ],
        ) from error
    return Moment(at_us=round(at.timestamp() * 1_000_000))


def _order_of_place(text: str, table: TableProgress) -> str:
    """The order after the last transaction before a place in MySQL's log: rows that were copied there have it."""
    known = table.positions[0].position if table.positions else {}
    newest = EventOrder.from_sort_key(table.order) if table.order else EventOrder(epoch=0, rank=0, tx_ordinal=0)
    mistakes = []
    place = _PLACE.fullmatch(text)
    if "file" not in known:
        mistakes.append("a place in MySQL's log needs a source that has one; write a time or an order")
    elif place is not None and known.get("gtid"):
        mistakes.append("the source numbers its transactions by GTIDs: write gtid_executed as it was then")
    elif place is None and not known.get("gtid"):
        mistakes.append("the source has no GTIDs: write binlog.000042:157, as SHOW BINARY LOG STATUS printed then")
    if newest.epoch:
        mistakes.append(
            f"the source was copied again after its log began (epoch {newest.epoch}), so that a place does not say which "
            "changes came before it; write a time or an order"
        )
    try:
        rank = rank_of_place(place[1], int(place[2]) - 1) if place else GtidSet.parse(text).transaction_count()
    except ValueError as error:
        mistakes.append(f"{text!r} is no set of GTIDs: {error}")
        rank = 0
    else:
        mistakes += [f"{text!r} names no transaction"] * (rank <= 0)
    if mistakes:
        raise InvalidSettings("--as-of", mistakes)
    reached = newest.rank if newest.tx_ordinal else newest.rank - 1  # a copied row is of the transaction before
    if rank > reached:
        further = f"the table has got to order {table.order}, and the place is further on (rank {rank}): wait until it is there"
        raise InvalidSettings("--as-of", [further])
    return EventOrder(epoch=newest.epoch, rank=rank, tx_ordinal=0).after().sort_key()


def rebuild(
    sinks: SinkView,
    tenant: str,
    table: TableProgress,
    *,
    as_of: Moment,
    into: str,
    key: Sequence[str] = (),
    unavailable: Sequence[str] = (),
    on_progress: OnProgress = lambda _: None,
) -> tuple[Rebuilt, list[str]]:
    """The outcome, and notes about it. ``table``: by ``choose_table``. Spark runs on this machine.

    Raises:
        InvalidSettings: it cannot be; every reason is listed with its remedy.
        RebuildFailed: the job broke off; the message has the end of its log.
    """
    if mistakes := _mistakes(sinks.spec(tenant), table, into):
        raise InvalidSettings(f"rebuild {tenant} {table.table}", mistakes)
    *namespace, name = table.warehouse_table.split(".")
    warehouse, warehouse_settings = sinks.job_warehouse(tenant)
    settings = RebuildSettings(
        warehouse=warehouse,
        warehouses={warehouse: warehouse_settings},
        session=session_settings(find_toolchain()),
        namespace=tuple(namespace),
        table=name,
        into=into,
        as_of=as_of,
        key=tuple(key),
        unavailable=tuple(unavailable),
    )
    rebuilt = _run(sinks.logs_dir / _LOG, settings, on_progress)
    return rebuilt, _notes(tenant, table, as_of, rebuilt)


def _mistakes(spec: TenantSpec, table: TableProgress, into: str) -> list[str]:
    mistakes = []
    if spec.sink is not None and spec.sink.mode is not SinkMode.APPEND:
        mistakes.append(
            f"sink.mode is {spec.sink.mode.value}: only mode append has every change. A history is asked by valid_from and "
            "valid_to; of a mirror ask its snapshots (docs/sinks/query.md, 'Time travel')"
        )
    if not _NAME.fullmatch(into):
        mistakes.append(f"--into {into!r}: take letters, digits, '_', '$' and '-'")
    if into == table.warehouse_table.rpartition(".")[2]:
        mistakes.append(f"--into {into!r} is the log itself: it is never written over; choose another name")
    return mistakes


def _run(log_file: Path, settings: RebuildSettings, on_progress: OnProgress) -> Rebuilt:
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="headwater-rebuild-") as folder, log_file.open("wb") as log:
        path = Path(folder) / "settings.json"  # which is YAML too
        path.write_bytes(msgspec.json.encode(settings))
        command = [sys.executable, "-m", "spark.jobs.rebuild", "--settings", str(path)]
        if setpriv := shutil.which("setpriv"):  # with this process it ends, however that ends
            command = [setpriv, "--pdeathsig", "TERM", "--", *command]
        with subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **PYTHON_ENVIRON},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        ) as job:
            assert job.stdout is not None
            answers = list(_followed(job.stdout, on_progress))
    failed = next((line["failed"] for line in answers if "failed" in line), None)
    if job.returncode == _EXIT_MISTAKE:
        raise InvalidSettings("rebuild", [failed or "see its log"])
    if job.returncode or not answers:
        raise RebuildFailed(f"{failed or 'the job ended'}\n{last_lines(log_file)}")
    return msgspec.convert(answers[-1], Rebuilt)


def _followed(lines: Iterator[bytes], on_progress: OnProgress) -> Iterator[dict[str, str]]:
    """The job's reports, as they come; other lines are Spark's."""
    for line in lines:
        try:
            answer = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue
        if isinstance(answer, dict):
            if "doing" in answer:
                on_progress(answer["doing"])
            yield answer


def _notes(tenant: str, table: TableProgress, as_of: Moment, rebuilt: Rebuilt) -> list[str]:
    """Notes about the log's gaps."""
    notes = []
    begins, ends = (Moment(at_us=at).text for at in (rebuilt.log_begins_at_us, rebuilt.log_ends_at_us))
    if as_of.at_us is not None and as_of.at_us > rebuilt.log_ends_at_us:
        notes.append(f"the log ends at {ends}: of changes from then to the moment, if there were any, it has none yet")
    if rebuilt.unknown_existed:
        notes.append(
            f"{rebuilt.unknown_existed:,} row(s) were there and are missing: the log begins at {begins} and has no image "
            "of them from before the moment"
        )
    if rebuilt.unknown_may_have_existed:
        notes.append(
            f"{rebuilt.unknown_may_have_existed:,} row(s) may be missing: the log has them from a copy of the source that "
            "was made after the moment, and a copy does not say from when on they were there"
        )
    if table.parked_keys:
        notes.append(
            f"changes of {table.parked_keys:,} key(s) are dead letters, and not in the log: `headwater dead-letter list "
            f"{tenant}`"
        )
    return notes
