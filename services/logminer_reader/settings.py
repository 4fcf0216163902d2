"""Settings of one LogMiner reader: one Oracle database, one source."""

import tempfile

from libs.config.connections import GrpcClientSettings, GrpcServerSettings, KafkaSettings, TelemetrySettings
from libs.source.oracle.settings import OracleSourceSettings


class LogminerReaderSettings(OracleSourceSettings, frozen=True, kw_only=True):
    """All settings of one LogMiner reader."""

    source: str
    """Name of the source: ``topic.prefix`` of its events. Letters, digits, ``_`` and ``-``."""
    lease_s: float = 15.0
    """How long a dead reader's partition stays reserved, in seconds; renewed three times as often."""
    spill_dir: str = tempfile.gettempdir()
    """A folder for transactions that do not fit into memory: it should hold the largest that the source ever writes."""
    kafka: KafkaSettings = KafkaSettings()
    schema_history: GrpcClientSettings
    checkpoint_committer: GrpcClientSettings
    grpc: GrpcServerSettings = GrpcServerSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
