"""The list of what is held of a tenant."""

import io

from libs.cli.console import PlainConsole
from libs.cli.erase import print_held
from libs.operations.erase.held import Held


def test_long_names_fold_at_80_columns_and_sizes_stay_whole() -> None:
    held = [
        Held(kind="topic", name="globex.shop.shop.orders", records=1_234_567, bytes=22_300_000),
        Held(kind="Iceberg namespace", name="globex", records=1),
        Held(kind="state", name="data/router/tenants/tenants-globex-ce9f77c5a6ebe91d.yaml", bytes=300),
    ]
    page = io.StringIO()

    print_held(held, PlainConsole(file=page, width=80))

    lines = page.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["topic", "globex.shop.shop.orders", "1,234,567", "record(s),", "22.3", "MB"]
    assert "0.3 kB" in page.getvalue()
