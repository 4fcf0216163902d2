"""The register of a process's faults over gRPC (``headwater.faults.v1.Faults``): every server of ours answers it."""

from typing import Any, Final

from libs.telemetry.faults import lasting_faults
from libs.types.fault import Fault, FaultScope, Severity
from protos.headwater.faults.v1 import faults_pb2 as pb
from protos.headwater.faults.v1 import faults_pb2_grpc

SERVICE_NAME: Final = pb.DESCRIPTOR.services_by_name["Faults"].full_name
MOST_FAULTS: Final = 1_000
"""Of one answer: a router may refuse every table of a thousand tenants."""

_SEVERITIES: Final = {
    Severity.HALTED: pb.SEVERITY_HALTED,
    Severity.DIFFERS: pb.SEVERITY_DIFFERS,
    Severity.DEGRADED: pb.SEVERITY_DEGRADED,
}


class FaultsService(faults_pb2_grpc.FaultsServicer):
    """Answers for the process that it runs in."""

    async def ListFaults(self, request: pb.ListFaultsRequest, context: Any) -> pb.ListFaultsResponse:  # noqa: N802
        """The worst first."""
        faults = lasting_faults()
        most = min(request.most or MOST_FAULTS, MOST_FAULTS)
        return pb.ListFaultsResponse(faults=map(fault_to_proto, faults[:most]), lasting=len(faults))


def fault_to_proto(fault: Fault) -> pb.Fault:
    """The wire form of ``fault``."""
    return pb.Fault(
        id=fault.id,
        severity=_SEVERITIES[fault.severity],
        since_us=fault.since_us,
        source=fault.scope.source,
        tenant=fault.scope.tenant,
        table=fault.scope.table,
        process=fault.scope.process,
        happened=fault.happened,
        remedy=fault.remedy,
        command=fault.command,
        docs=fault.docs,
    )


def fault_from_proto(message: pb.Fault) -> Fault:
    """What ``message`` says. A severity of a later release counts as the worst."""
    severities = {wire: severity for severity, wire in _SEVERITIES.items()}
    return Fault(
        id=message.id,
        severity=severities.get(message.severity, Severity.HALTED),
        since_us=message.since_us,
        scope=FaultScope(source=message.source, tenant=message.tenant, table=message.table, process=message.process),
        happened=message.happened,
        remedy=message.remedy,
        command=message.command,
        docs=message.docs,
    )
