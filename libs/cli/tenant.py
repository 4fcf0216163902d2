"""``headwater tenant``: its subcommands, each imported when it is asked for."""

from typing import Final

import click

from libs.cli.lazy_group import LazyGroup, Subcommand

SUBCOMMANDS: Final = {
    "apply": Subcommand("tenant_documents", "apply_command", "Apply the document in FILE to its tenant."),
    "decrypt": Subcommand("tenant_documents", "decrypt_command", "Decrypt values that an encrypt mask made."),
    "explain": Subcommand("tenant_documents", "explain_command", "Say why a table or column is delivered or withheld."),
    "list": Subcommand("tenant_list", "list_command", "List the tenants, or the versions of their documents."),
    "plan": Subcommand("tenant_documents", "plan_command", "Show the changes from the document in force to another."),
    "snapshot": Subcommand("tenant_documents", "snapshot_command", "Copy the existing rows of tables to a tenant."),
    "validate": Subcommand(
        "tenant_documents", "validate_command", "List every mistake of documents, by file and line."
    ),
}


@click.group(name="tenant", cls=LazyGroup, subcommands=SUBCOMMANDS)
def tenant_command() -> None:
    """Validate, plan, apply and explain tenants' documents (docs/tenants.md)."""
