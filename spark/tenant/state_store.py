"""Objects in S3, GCS or Azure that only a writer who has seen the last one replaces. Nothing here knows their content.

The client is obstore, the bindings of Rust's ``object_store``: one interface for the three, whose keys it takes from the
environment. It is imported only where a job's settings name a store.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, TypeAlias

from libs.errors import HeadwaterError, InvalidSettings, TransientError
from spark.settings import StateStoreSettings

Version: TypeAlias = Mapping[str, str]
"""Which of an object's contents is meant: its ETag, and its generation where the store has such."""

# The job's loop waits for an answer while it opens a tenant's state, and counts as hanging after 120 s.
_TIMEOUT: Final = "10s"
_CONNECT_TIMEOUT: Final = "5s"
_RETRIES: Final = {"max_retries": 1, "retry_timeout": timedelta(seconds=10)}
_LONGEST_REASON: Final = 200
_TOOK: Final = re.compile(r" in [0-9.]+[mµn]?s\b")
"""How long an attempt took: without it two attempts at a server that is away have one reason, which is logged once."""


class ObjectChanged(HeadwaterError):
    """The object is not the one that the writer expected; nothing was written."""


class StateStore:
    """Small objects below one URI; for any thread."""

    def __init__(self, settings: StateStoreSettings) -> None:
        """Nothing is asked yet. Raises InvalidSettings where the client takes them, or the environment's keys, for none."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
        from obstore.store import from_url

        self._uri = settings.uri.rstrip("/")
        self._api: Any = obstore
        self._changed = (AlreadyExistsError, PreconditionError)
        self._errors = (BaseError, OSError)
        options: dict[str, Any] = {}
        if settings.endpoint is not None:
            options["endpoint"] = settings.endpoint
        if settings.region is not None:
            options["region"] = settings.region
        if settings.uri.startswith("s3://"):
            options["virtual_hosted_style_request"] = not settings.is_path_style
        is_plain = settings.endpoint is not None and settings.endpoint.startswith("http://")
        client = {"timeout": _TIMEOUT, "connect_timeout": _CONNECT_TIMEOUT, "allow_http": is_plain}
        try:
            open_store: Any = from_url  # typed by each kind of store, with literals
            self._store: Any = open_store(self._uri, client_options=client, retry_config=_RETRIES, **options)
        except self._errors as error:
            raise InvalidSettings(
                "state_store", [f"uri: {_first_line(error)}; see the keys in the environment"]
            ) from error

    def read(self, key: str) -> tuple[bytes, Version] | None:
        """An object's content and version; None: there is none.

        Raises:
            TransientError: the store does not answer, or refuses; try again.
        """
        try:
            found = self._api.get(self._store, key)
            return bytes(found.bytes()), _version(found.meta)
        except FileNotFoundError:
            return None
        except self._errors as error:
            raise self._unavailable(key, error) from error

    def version(self, key: str) -> Version | None:
        """Which content an object has; None: there is no such object. Raises as ``read``."""
        try:
            return _version(self._api.head(self._store, key))
        except FileNotFoundError:
            return None
        except self._errors as error:
            raise self._unavailable(key, error) from error

    def write(self, key: str, content: bytes, expected: Version | None) -> Version:
        """Replace the content ``expected``, or make the object where that is None; the new version. Durable on return. Where it
        raises TransientError, it may be written nonetheless, then or later.

        Raises:
            ObjectChanged: the object is another one by now; read it.
            TransientError: the store does not answer, or refuses; try again.
        """
        mode = "create" if expected is None else dict(expected)
        try:
            return _version(self._api.put(self._store, key, content, mode=mode))
        except self._changed as error:
            raise ObjectChanged(f"{self.place(key)} was written by somebody else") from error
        except self._errors as error:
            raise self._unavailable(key, error) from error

    def remove(self, key: str) -> None:
        """Fine where there is none. Raises as ``read``."""
        try:
            self._api.delete(self._store, key)
        except FileNotFoundError:
            return
        except self._errors as error:
            raise self._unavailable(key, error) from error

    def place(self, key: str) -> str:
        """For people: where an object is."""
        return f"{self._uri}/{key}"

    def _unavailable(self, key: str, error: BaseException) -> TransientError:
        return TransientError(
            f"{self.place(key)} cannot be read or written ({type(error).__name__}: {_first_line(error)}); see that the object "
            "store answers, that the bucket of state_store.uri is there, and that the job's key may get, put and delete "
            "objects and list the bucket"
        )


def _first_line(error: BaseException) -> str:
    [first, *_] = str(error).splitlines() or [""]
    return _TOOK.sub("", first)[:_LONGEST_REASON]


def _version(answer: Mapping[str, Any]) -> Version:
    return {name: answer[name] for name in ("e_tag", "version") if answer.get(name)}
