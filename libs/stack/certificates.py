"""The certificates of the embedded stack: made at the first start, renewed while it runs, readable by the home's owner alone.

Each process has one for the loopback address, and the commands have one together (``libs.mesh.own_services``).
"""

import asyncio
import contextlib
import datetime
import shutil
from collections.abc import Callable, Iterable
from typing import Final

from libs.mesh.home import Home
from libs.mesh.own_services import AUTHORITIES, COMMANDS, certificate_file, key_file
from libs.mesh.state import ServicePhase, replace_file
from libs.rpc.authority import Certificates, KeyPair, is_whole, renewed
from libs.servers.ports import LOOPBACK
from libs.stack.supervisor import StackEvent

LOOK_S: Final = 3_600.0
_AUTHORITY: Final = "authority"
_FOLLOWING: Final = "following-authority"
_FORMER: Final = "former-authority"
_OWN: Final = (_AUTHORITY, _FOLLOWING, _FORMER, AUTHORITIES)


def renew_certificates(home: Home, processes: Iterable[str], now: datetime.datetime) -> bool:
    """Write the certificates that ``processes`` lack, or that come to their end; whether any was written. Blocks.

    A file that holds no certificate counts as missing. The authorities are written first: a caller knows one before a server
    shows a certificate of it.
    """
    names = dict.fromkeys((*processes, COMMANDS), (LOOPBACK, "localhost"))
    found = _found(home)
    wanted = renewed(found, names, now)
    if wanted is None:
        return False
    folder = home.tls_dir
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    for name, pair in ((_AUTHORITY, wanted.authority), (_FOLLOWING, wanted.following)):
        if pair is not None:
            replace_file(key_file(home, name), pair.key, mode=0o600)
            replace_file(certificate_file(home, name), pair.certificate, mode=0o600)
        else:
            for path in (key_file(home, name), certificate_file(home, name)):
                path.unlink(missing_ok=True)
    replace_file(certificate_file(home, _FORMER), wanted.former, mode=0o600)
    replace_file(certificate_file(home, AUTHORITIES), wanted.known, mode=0o600)
    for name, pair in wanted.of_components.items():
        if found is None or found.of_components.get(name) != pair:
            replace_file(key_file(home, name), pair.key, mode=0o600)
            replace_file(certificate_file(home, name), pair.certificate, mode=0o600)
    return True


def forget_certificates(home: Home) -> None:
    """Remove them all: processes and commands of a stack without TLS take none."""
    shutil.rmtree(home.tls_dir, ignore_errors=True)


async def keep_renewed(home: Home, processes: Iterable[str], on_event: Callable[[StackEvent], None]) -> None:
    """Look for certificates that come to their end, until it is cancelled."""
    names = tuple(processes)
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            is_new = await asyncio.to_thread(renew_certificates, home, names, datetime.datetime.now(datetime.UTC))
        except OSError as error:
            on_event(StackEvent("certificates", ServicePhase.UP, f"not renewed: {error}; tried again in an hour"))
            continue
        if is_new:
            on_event(StackEvent("certificates", ServicePhase.UP, "renewed; no process starts again for it"))


def _found(home: Home) -> Certificates | None:
    authority = _pair(home, _AUTHORITY)
    if authority is None:
        return None
    of_components = {
        path.stem: pair
        for path in home.tls_dir.glob("*.pem")
        if path.stem not in _OWN and (pair := _pair(home, path.stem)) is not None
    }
    former = b""
    with contextlib.suppress(OSError):
        former = certificate_file(home, _FORMER).read_bytes()
    return Certificates(authority, _pair(home, _FOLLOWING), former, of_components)


def _pair(home: Home, name: str) -> KeyPair | None:
    try:
        pair = KeyPair(certificate_file(home, name).read_bytes(), key_file(home, name).read_bytes())
    except OSError:
        return None
    return pair if is_whole(pair) else None
