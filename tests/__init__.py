"""Tests. The settings here hold before any module of theirs is loaded."""

import os

# PySpark forks to start Java. Where gRPC has threads in the same process, its handlers of forks run in the child too: at
# times a child ended, or hung, before it was Java.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
