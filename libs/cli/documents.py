"""``headwater validate``: a home's documents, before anything runs."""

import click

from libs.cli.answer import answer, json_option
from libs.cli.home import home_option
from libs.cli.terminal import echo, secho
from libs.errors import InvalidSettings
from libs.mesh.documents import Documents, read_documents
from libs.mesh.home import Home, is_initialised
from libs.mesh.home_view import lines_in_home
from libs.mesh.source_tables import known_tables
from libs.operations.preflight import preflight, reader_has_begun, resume_position, where
from libs.operations.tenant_plan import idle_mistakes
from libs.tenants.place import nearest


@click.command()
@click.argument("source", required=False)
@json_option
@home_option
def validate(home: Home, source: str | None) -> None:
    """List every mistake in sources/ and tenants/; with SOURCE, ask its server too. Exits with 2 if there is a mistake.

    With SOURCE the command runs the reader's pre-flight: server, log, grants and settings, each fault with the statement that
    mends it. On a MySQL server it also looks for everything that the document names: tables, signal table, overrides, failover
    servers and replicas. While the stack runs, it checks that the log still holds the reader's position. The command changes
    nothing and does not need the stack. Exits with 1 if the server does not answer.

    \b
    Examples:
      headwater validate              check the documents alone
      headwater validate shop         check the server of sources/shop.yaml too
    """
    if not is_initialised(home):
        raise InvalidSettings(str(home.root), ["is no Headwater home: run `headwater init`, or name one with --home"])
    documents = read_documents(home)
    mistakes = [
        *documents.source_mistakes,
        *documents.warehouse_mistakes,
        *documents.kafka_mistakes,
        *documents.schema_registry_mistakes,
        *documents.openlineage_mistakes,
        *documents.topic_quotas_mistakes,
        *documents.tenant_mistakes,
    ]
    if mistakes:
        raise InvalidSettings(str(home.root), mistakes)
    warnings = [] if source is None else _validate_server(home, documents, source)
    echo(
        f"no mistakes: {len(documents.sources)} source(s) ({', '.join(documents.sources) or 'none'}), "
        f"{len(documents.tenants)} tenant(s) ({', '.join(documents.tenants) or 'none'})"
    )
    answer(
        {
            "home": home.root,
            "sources": sorted(documents.sources),
            "tenants": sorted(documents.tenants),
            "asked_source": source,
            "warnings": warnings,
        }
    )


def _validate_server(home: Home, documents: Documents, source: str) -> list[str]:
    """Its warnings."""
    document = documents.sources.get(source)
    if document is None:
        raise InvalidSettings(
            f"source {source}", [f"has no document in {home.sources_dir}; {nearest(source, sorted(documents.sources))}"]
        )
    resume_from = resume_position(home, source, document)
    report = preflight(document, resume_from=resume_from, has_begun=reader_has_begun(home, source, document))
    warnings = [f"{each.what}; mend: {each.mend}" for each in report.warnings]
    for warning in warnings:
        secho(f"warning: {warning}", fg="yellow", err=True)
    if report.faults:
        raise InvalidSettings(where(document), [f"{fault.what}; mend: {fault.mend}" for fault in report.faults])
    known, note = known_tables(home, source, document)
    if note is not None:
        warnings.append(note)
        secho(f"warning: {note}", fg="yellow", err=True)
    idle = [
        mistake
        for name, spec in documents.tenants.items()
        for mistake in lines_in_home(documents, name).locate(list(idle_mistakes(spec, {source: known})))
    ]
    if idle:
        raise InvalidSettings(where(document), idle)
    echo(f"{source}: the server can be followed{', from the checkpoint on' if resume_from is not None else ''}")
    return warnings
