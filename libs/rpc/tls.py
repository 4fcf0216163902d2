"""The files that a side of a gRPC connection proves itself with, and judges the other by; and why a handshake failed.

They are read again when they change: an authority renews certificates every few weeks, and nothing is restarted for it.

gRPC reports a failed handshake in words only, and a peer that hangs up after it without a reason: ``refusal_in`` reads the
words, ``why_closed`` tries by itself.
"""

import re
import socket
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

import grpc
import structlog

from libs.config.connections import GrpcServerSettings
from libs.errors import InvalidSettings

log = structlog.get_logger()

Stamp = tuple[tuple[int, int], ...]
"""Of files: another one, when one of them is another."""


class TlsFiles(Protocol):
    """A client's TLS settings; all None: none."""

    @property
    def tls_ca_file(self) -> str | None: ...

    @property
    def tls_certificate_file(self) -> str | None: ...

    @property
    def tls_key_file(self) -> str | None: ...


def read_pem(name: str, path: str | None, mistakes: list[str]) -> bytes | None:
    """The file's content; None where none is named, or where it cannot be read: then a mistake of the setting ``name`` more."""
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        mistakes.append(f"{name}: {path} cannot be read ({error.strerror})")
        return None


def client_credentials(files: TlsFiles, *, subject: str) -> grpc.ChannelCredentials | None:
    """A client's credentials; None: without TLS.

    Raises:
        InvalidSettings: of ``subject``; a file cannot be read or is no such file, or one of a pair is missing. gRPC
            itself would end the process, or say no more than that it cannot shake hands.
    """
    if files.tls_ca_file is None and files.tls_certificate_file is None and files.tls_key_file is None:
        return None
    mistakes: list[str] = []
    authority = read_pem("tls_ca_file", files.tls_ca_file, mistakes)
    certificate = read_pem("tls_certificate_file", files.tls_certificate_file, mistakes)
    key = read_pem("tls_key_file", files.tls_key_file, mistakes)
    if (files.tls_certificate_file is None) != (files.tls_key_file is None):
        mistakes.append("tls_certificate_file and tls_key_file: give both, or none")
    if not mistakes:
        mistakes += _useless_files("", "tls_ca_file", files.tls_ca_file, files.tls_certificate_file, files.tls_key_file)
    if mistakes:
        raise InvalidSettings(subject, mistakes)
    return grpc.ssl_channel_credentials(root_certificates=authority, private_key=key, certificate_chain=certificate)


def server_credentials(settings: GrpcServerSettings) -> grpc.ServerCredentials | None:
    """A server's credentials, read from the files at each new connection; None: without TLS.

    Files that are of no use later leave the former ones in force, and the log says so.

    Raises:
        InvalidSettings: a file cannot be read or is no such file, or one of a pair is missing.
    """
    paths = tuple(filter(None, (settings.tls_certificate_file, settings.tls_key_file, settings.tls_client_ca_file)))
    stamp = files_stamp(paths)
    first = _certificates(settings)
    if first is None:
        return None
    logged: Stamp = ()

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal stamp, logged
        now = files_stamp(paths)
        if now == stamp:
            return None
        try:
            found = _certificates(settings)
        except InvalidSettings as error:
            if logged != now:
                log.warning("certificates_not_renewed", reason=str(error))
            logged = now
            return None
        stamp = now
        log.info("certificates_renewed", files=list(paths))
        return found

    return grpc.dynamic_ssl_server_credentials(
        first,
        renewed,  # type: ignore[arg-type]  # None, which the stubs do not know: as before
        require_client_authentication=settings.tls_client_ca_file is not None,
    )


def _certificates(settings: GrpcServerSettings) -> grpc.ServerCertificateConfiguration | None:
    mistakes: list[str] = []
    certificate = read_pem("grpc.tls_certificate_file", settings.tls_certificate_file, mistakes)
    key = read_pem("grpc.tls_key_file", settings.tls_key_file, mistakes)
    client_ca = read_pem("grpc.tls_client_ca_file", settings.tls_client_ca_file, mistakes)
    if not mistakes and (certificate is None) != (key is None):
        mistakes.append("grpc.tls_certificate_file and grpc.tls_key_file: give both, or none")
    if not mistakes and client_ca is not None and certificate is None:
        mistakes.append("grpc.tls_client_ca_file: needs tls_certificate_file and tls_key_file")
    if settings.client_names and settings.tls_client_ca_file is None:
        mistakes.append("grpc.client_names: needs tls_client_ca_file, as without it no caller shows a certificate")
    if not mistakes:
        mistakes += _useless_files(
            "grpc.",
            "tls_client_ca_file",
            settings.tls_client_ca_file,
            settings.tls_certificate_file,
            settings.tls_key_file,
        )
    if mistakes:
        raise InvalidSettings("grpc", mistakes)
    if certificate is None or key is None:
        return None
    return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=client_ca)


def files_stamp(paths: Iterable[str]) -> Stamp:
    """A stamp that changes when one of ``paths`` is replaced or written; zeros for one that is away."""
    return tuple(_stamp(path) for path in paths)


def _stamp(path: str) -> tuple[int, int]:
    try:
        found = Path(path).stat()
    except OSError:
        return 0, 0
    return found.st_ino, found.st_mtime_ns


def _useless_files(
    prefix: str, authority_name: str, authority: str | None, certificate: str | None, key: str | None
) -> list[str]:
    mistakes = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if authority is not None:
        try:
            context.load_verify_locations(authority)
        except ssl.SSLError:
            mistakes.append(f"{prefix}{authority_name}: {authority} holds no certificate (PEM)")
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
        except (ssl.SSLError, _HasPassword):
            mistakes.append(
                f"{prefix}tls_certificate_file: {certificate} is no certificate (PEM), or the key in {prefix}tls_key_file "
                f"({key}) is not its own, or has a password"
            )
    return mistakes


class _HasPassword(Exception):
    """A key that nobody can be asked the password of."""


def _no_password() -> str:
    raise _HasPassword


_REFUSALS: Final = (
    (
        re.compile(r"certificate has expired|certificate is not yet valid", re.IGNORECASE),
        "its certificate is not valid now: have it renewed there, and look at this machine's clock",
    ),
    (
        re.compile(r"hostname verification check failed", re.IGNORECASE),
        "its certificate is of another host: name it in {place}.host as the certificate does, or have one made for this name",
    ),
    (
        re.compile(r"CERTIFICATE_VERIFY_FAILED|certificate signature failure", re.IGNORECASE),
        "its certificate is not of the authority in {place}.tls_ca_file: name that of its own",
    ),
    (
        re.compile(r"alert[_ ](?:certificate|bad certificate|bad_certificate|unknown[_ ]ca)", re.IGNORECASE),
        "it refuses the client certificate, or wants one: look at {place}.tls_certificate_file and {place}.tls_key_file",
    ),
    (
        re.compile(r"WRONG_VERSION_NUMBER"),
        "it answers without TLS: take {place}.tls_ca_file and the client certificate out, or correct {place}.port",
    ),
)


def refusal_in(details: str, *, place: str) -> str | None:
    """The fault, and the setting of ``place`` that mends it; None where gRPC reports no handshake."""
    return next((text.format(place=place) for pattern, text in _REFUSALS if pattern.search(details)), None)


def was_closed(details: str) -> bool:
    """The peer hung up on a connection before it was one."""
    return "failed to connect" in details and ("Socket closed" in details or "reset" in details)


def why_closed(host: str, port: int, files: TlsFiles, *, place: str, timeout_s: float) -> str | None:
    """Why a peer hangs up on us, found out by a handshake of our own; None: not by TLS, or it is not known. Blocks."""
    has_tls = files.tls_ca_file is not None or files.tls_certificate_file is not None
    wants_ours = (
        f"it refuses the client certificate in {place}.tls_certificate_file: expired, or of an authority that it does not know"
        if files.tls_certificate_file is not None
        else f"it wants a client certificate: name one in {place}.tls_certificate_file and its key in {place}.tls_key_file"
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # gRPC judges the peer; this sends nothing to it
    context.set_alpn_protocols(["h2"])
    try:
        if files.tls_certificate_file is not None:
            context.load_cert_chain(files.tls_certificate_file, files.tls_key_file, password=_no_password)
        with (
            socket.create_connection((host, port), timeout=timeout_s) as connection,
            context.wrap_socket(connection, server_hostname=host) as tls,
        ):
            if not has_tls:
                return f"it answers with TLS only: name its certificate authority in {place}.tls_ca_file"
            # TLS 1.3 judges a client's certificate after the client's own handshake; HTTP/2 has the server speak first.
            return None if tls.recv(1) else wants_ours
    except ssl.SSLError as error:
        return wants_ours if has_tls and "ALERT" in (error.reason or "") else None
    except OSError:
        return None
