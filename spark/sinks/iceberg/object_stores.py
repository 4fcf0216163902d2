"""Object stores in which Iceberg's tables may lie: by which class Iceberg reaches them, and which jar has the vendor's client.

Source: Iceberg documentation, "AWS", "GCP" and "Azure" (FileIO); Iceberg's jar for Spark has the first, and not the second.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """One vendor's."""

    name: str
    file_io: str
    """Iceberg's class: Hadoop's, which it takes by default, is not among Spark's jars."""
    client: str
    """A class of the vendor's, by which the jar is known."""
    jar: str


S3: Final = ObjectStore(
    name="S3",
    file_io="org.apache.iceberg.aws.s3.S3FileIO",
    client="software.amazon.awssdk.services.s3.S3Client",
    jar="iceberg-aws-bundle",
)
GCS: Final = ObjectStore(
    name="Google Cloud Storage",
    file_io="org.apache.iceberg.gcp.gcs.GCSFileIO",
    client="com.google.cloud.storage.Storage",
    jar="iceberg-gcp-bundle",
)
ADLS: Final = ObjectStore(
    name="Azure Data Lake Storage",
    file_io="org.apache.iceberg.azure.adlsv2.ADLSFileIO",
    client="com.azure.storage.file.datalake.DataLakeFileSystemClient",
    jar="iceberg-azure-bundle",
)
_BY_SCHEME: Final = {
    **dict.fromkeys(("s3", "s3a", "s3n"), S3),
    "gs": GCS,
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), ADLS),
}


def object_store_of(place: str) -> ObjectStore | None:
    """The store of a URI, by any of Hadoop's or Iceberg's names for it; None: it is a folder, or a catalog's own name.

    >>> [found.name if (found := object_store_of(place)) else None for place in ("s3a://lake/w", "gs://lake/w", "/lake/w")]
    ['S3', 'Google Cloud Storage', None]
    """
    scheme, separator, _ = place.partition("://")
    return _BY_SCHEME.get(scheme) if separator else None
