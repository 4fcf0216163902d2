"""Audit records of a service's calls are in the topic, and ``headwater audit`` shows them."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from libs.cli.main import headwater
from libs.config.connections import KafkaSettings
from libs.errors import HeadwaterError
from libs.kafka.audit_topic import read_audit
from libs.rpc.checkpoint_committer_client import CheckpointCommitterClient
from libs.types.position import SourcePartition
from tests.integration.service_process import Services
from tests.waiting import until


async def test_a_reset_is_in_the_topic_with_who_asked_for_it(
    services: Services, bootstrap_servers: str, tmp_path: Path
) -> None:
    partition = SourcePartition(source="audited", name="0")
    kafka = KafkaSettings(bootstrap_servers=bootstrap_servers)
    async with CheckpointCommitterClient(services.checkpoint_committer.client_settings) as client:
        await client.reset(partition, position=None, reason="the table was restored")

    def records() -> list[Any]:
        try:
            return [each for each in read_audit(kafka) if each.request.get("source") == "audited"]
        except HeadwaterError:
            return []

    await until(lambda: len(records()) == 1, because="the record reaches the topic", seen=records)
    [record] = records()
    assert (record.method, record.code, dict(record.after)) == ("ResetCheckpoint", "OK", {"position": None})
    assert record.request["reason"] == "the table was restored"
    mesh = tmp_path / "mesh.yaml"
    mesh.write_text(f"kafka: {{bootstrap_servers: '{bootstrap_servers}'}}\n")
    shown = CliRunner().invoke(headwater, ["audit", "--mesh", str(mesh), "--json", "--method", "ResetCheckpoint"])
    assert [json.loads(line)["request"]["source"] for line in shown.output.splitlines()].count("audited") == 1
    assert "ResetCheckpoint  OK  by ipv" in CliRunner().invoke(headwater, ["audit", "--mesh", str(mesh)]).output
