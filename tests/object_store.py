"""A real object store: versitygw, which serves a folder as S3. Its objects are files there."""

import http.client
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from pyarrow.fs import S3FileSystem

from libs.servers.ports import LOOPBACK
from libs.servers.process import ProcessSpec

REGION = "eu-central-1"
_PROBE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """Where it is, and the key that may use it."""

    program: Path
    folder: Path
    port: int
    key: str = "headwater"
    secret: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def uri(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def environ(self) -> dict[str, str]:
        """Of a client that proves itself by its environment."""
        return {"AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": self.secret}

    @property
    def properties(self) -> dict[str, str]:
        """Of an Iceberg catalog, without secrets."""
        return {"s3.endpoint": self.uri, "s3.path-style-access": "true", "client.region": REGION}

    def spec(self) -> ProcessSpec:
        """How to start it; it listens on loopback alone."""
        objects, known = self.folder / "objects", self.folder / "known"
        for made in (objects, known):
            made.mkdir(parents=True)
        return ProcessSpec(
            name="object-store",
            command=(
                *(str(self.program), "--port", f"{LOOPBACK}:{self.port}", "--region", REGION),
                *("posix", "--sidecar", str(known), str(objects)),
            ),
            environ={"ROOT_ACCESS_KEY": self.key, "ROOT_SECRET_KEY": self.secret},
            working_dir=self.folder,
            ready=self._answers,
        )

    def make_bucket(self, name: str) -> None:
        client = S3FileSystem(
            access_key=self.key,
            secret_key=self.secret,
            endpoint_override=self.uri,
            region=REGION,
            allow_bucket_creation=True,
        )
        client.create_dir(name)

    def file_of(self, uri: str) -> Path:
        """Where an object lies: ``s3://bucket/name``."""
        return self.folder / "objects" / uri.removeprefix("s3://")

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=_PROBE_TIMEOUT_S)
        try:
            connection.request("GET", "/")
            connection.getresponse()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        return True
