"""protos/vitess speaks Vitess's own wire format: held against the .proto files in Vitess's Java client.

The official files stay in a descriptor pool of their own: they name the same messages as ours.
"""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor, MethodDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool

from libs.setup import jar_download
from libs.setup.cache import cache_dir
from libs.setup.jars import jar_set
from protos.vitess import vtctlservice_pb2, vtgateservice_pb2

LOCKS_DIR = Path(__file__).parents[2] / "libs" / "stand_ins" / "vtgate" / "locks"
COMPILE_TIMEOUT_S = 60


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> DescriptorPool:
    """Vitess's .proto files, compiled."""
    folder = tmp_path_factory.mktemp("official")
    jars = jar_set("vitess-client", LOCKS_DIR)
    with zipfile.ZipFile(jar_download.fetched(jars, cache_dir()) / jars.jars[0].file_name) as jar:
        names = [name for name in jar.namelist() if name.endswith(".proto") and "/" not in name]
        jar.extractall(folder, names)
    compiled = folder / "all.bin"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", "--include_imports", f"-o{compiled}"]
    done = subprocess.run(
        [*command, "vtgateservice.proto", "vtctlservice.proto"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=COMPILE_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(compiled.read_bytes()).file:
        pool.Add(file)
    return pool


def test_the_subset_covers_what_it_should() -> None:
    """The comparison below walks every file: had it lost one, it would agree with less and less."""
    assert {message.full_name for message in _messages()} >= {
        "vtgate.VStreamRequest",
        "binlogdata.VEvent",
        "binlogdata.RowChange.Bitmap",
        "query.QueryResult",
        "topodata.KeyRange",
        "vtrpc.CallerID",
        "vtctldata.ShardReplicationPositionsResponse",
    }


@pytest.mark.servers
def test_each_field_has_vitess_number_type_and_label(official: DescriptorPool) -> None:
    ours = {field.full_name: _shape(field) for message in _messages() for field in message.fields}
    theirs = {
        field.full_name: _shape(field)
        for message in _messages()
        for field in official.FindMessageTypeByName(message.full_name).fields
    }

    assert {name: theirs.get(name) for name in ours} == ours


@pytest.mark.servers
def test_each_enum_value_has_vitess_number(official: DescriptorPool) -> None:
    ours = {f"{enum.full_name}.{value.name}": value.number for enum in _enums() for value in enum.values}
    theirs = {
        f"{enum.full_name}.{value.name}": value.number
        for enum in _enums()
        for value in official.FindEnumTypeByName(enum.full_name).values
    }

    assert {name: theirs.get(name) for name in ours} == ours


@pytest.mark.servers
def test_each_method_has_vitess_name_and_messages(official: DescriptorPool) -> None:
    services = [service for file in _files() for service in file.services_by_name.values()]
    ours = {method.full_name: _signature(method) for service in services for method in service.methods}
    theirs = {
        method.full_name: _signature(method)
        for service in services
        for method in official.FindServiceByName(service.full_name).methods
    }

    assert len(ours) == 4
    assert {name: theirs.get(name) for name in ours} == ours


def _shape(field: FieldDescriptor) -> tuple[object, ...]:
    named = field.message_type or field.enum_type
    return (
        field.number,
        field.type,
        field.is_repeated,
        field.is_repeated and field.is_packed,
        field.has_presence,
        named.full_name if named else None,
    )


def _signature(method: MethodDescriptor) -> tuple[object, ...]:
    return (
        method.input_type.full_name,
        method.output_type.full_name,
        method.client_streaming,
        method.server_streaming,
    )


def _files() -> list[FileDescriptor]:
    """Ours: the services' files and all that they import."""
    pool = descriptor_pool.Default()
    found: dict[str, FileDescriptor] = {}
    waiting = [vtgateservice_pb2.DESCRIPTOR.name, vtctlservice_pb2.DESCRIPTOR.name]
    while waiting:
        file = pool.FindFileByName(waiting.pop())
        if file.name not in found:
            found[file.name] = file
            waiting += [dependency.name for dependency in file.dependencies]
    return list(found.values())


def _messages() -> list[Descriptor]:
    found: list[Descriptor] = []
    waiting = [message for file in _files() for message in file.message_types_by_name.values()]
    while waiting:
        message = waiting.pop()
        found.append(message)
        waiting += message.nested_types
    return found


def _enums() -> list[EnumDescriptor]:
    return [enum for file in _files() for enum in file.enum_types_by_name.values()] + [
        enum for message in _messages() for enum in message.enum_types
    ]
