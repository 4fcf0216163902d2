"""Which rule keeps a column away; tables and rows are in ``tests/integration/test_tenant_commands.py``."""

from libs.mysql.logical import column
from libs.operations.tenant_explain import Rule, table_fate
from libs.tenants.document import read_tenant
from libs.types.table import TableId, TableSchema

TABLE = TableSchema(
    table_id=TableId(database="shop", table="people"),
    columns=(
        column("id", "int", is_optional=False),
        column("name", "text"),
        column("note", "text"),
        column("born", "date"),
    ),
    key=("id",),
    version=1,
    ddl="",
)
DOCUMENT = r"""tenant: acme
sources:
- name: crm
- name: shop
  exclude_columns: ['shop\.people\.x', 'shop\.people\.note']
  include_columns:
  - shop\.people\.(id|note)
  - shop\.people\.name
"""


def test_a_column_that_is_left_out_is_told_by_the_rule_that_did_it() -> None:
    """The pattern that excludes it, or the list that does not include it."""
    mistakes: list[str] = []
    parsed = read_tenant(DOCUMENT, file="acme.yaml", mistakes=mistakes)
    assert parsed is not None, mistakes

    fate = table_fate(parsed.spec, 1, parsed.lines, TABLE.table_id, TABLE, None)

    assert [(each.name, each.fate, each.because) for each in fate.columns] == [
        ("id", "delivered", None),
        ("name", "delivered", None),
        ("note", "left out", Rule(says=r"exclude_columns 'shop\.people\.note'", where="acme.yaml:5")),
        (
            "born",
            "left out",
            Rule(
                says=r"no include_columns matches it: 'shop\.people\.(id|note)', 'shop\.people\.name'",
                where="acme.yaml:6",
            ),
        ),
    ]
    assert fate.refused == ()
