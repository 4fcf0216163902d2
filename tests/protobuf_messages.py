"""Classes of Protobuf messages out of a schema's text, as protoc understands it: those that a consumer would generate."""

import tempfile
from functools import lru_cache
from pathlib import Path

from confluent_kafka.schema_registry.confluent import meta_pb2
from confluent_kafka.schema_registry.confluent.type import decimal_pb2
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import Message
from grpc_tools import protoc

FILE_NAME = "registered.proto"


@lru_cache(maxsize=500)
def file_descriptor(text: str) -> FileDescriptorProto:
    """The file as protoc reads it; fails where protoc refuses it."""
    with tempfile.TemporaryDirectory() as folder:
        known, made = Path(folder) / "known.pb", Path(folder) / "made.pb"
        known.write_bytes(FileDescriptorSet(file=_known_files()).SerializeToString())
        (Path(folder) / FILE_NAME).write_text(text)
        options = [f"--proto_path={folder}", f"--descriptor_set_in={known}", f"--descriptor_set_out={made}"]
        assert protoc.main(["protoc", *options, FILE_NAME]) == 0, text
        (file,) = FileDescriptorSet.FromString(made.read_bytes()).file
    return file


def message_class(text: str) -> type[Message]:
    """The class of the first message of a schema."""
    file = file_descriptor(text)
    pool = descriptor_pool.DescriptorPool()
    for each in (*_known_files(), file):
        pool.AddSerializedFile(each.SerializeToString())
    name = f"{file.package}.{file.message_type[0].name}" if file.package else file.message_type[0].name
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _known_files() -> list[FileDescriptorProto]:
    return [
        FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        for module in (descriptor_pb2, meta_pb2, decimal_pb2)
    ]
