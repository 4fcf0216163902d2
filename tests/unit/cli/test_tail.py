"""``headwater tail`` names the formats that it cannot read."""

import pytest

from libs.cli.tail import require_json
from libs.errors import InvalidSettings
from libs.types.tenant import EventFormat, FormatSettings, SourceSelection, TenantSpec


def test_avro_is_for_other_consumers() -> None:
    """Refused by name, with a program that reads it; JSON passes."""
    spec = TenantSpec(tenant="acme", sources=(SourceSelection(name="shop"),))
    require_json(spec)
    avro = TenantSpec(tenant="acme", sources=spec.sources, format=FormatSettings(kind=EventFormat.AVRO))

    with pytest.raises(InvalidSettings, match=r"tail reads json; read acme\..*kafka-avro-console"):
        require_json(avro)
