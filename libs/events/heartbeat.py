"""Debezium's heartbeat record: it says that a source is followed, though nothing that is captured changes."""

import orjson


def heartbeat(source: str, now_ms: int) -> tuple[bytes, bytes]:
    """Key and value (Debezium's documentation, "heartbeat.interval.ms").

    >>> heartbeat("shop", 7)
    (b'{"serverName":"shop"}', b'{"ts_ms":7}')
    """
    return orjson.dumps({"serverName": source}), orjson.dumps({"ts_ms": now_ms})
