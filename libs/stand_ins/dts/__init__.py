"""The stand-in for Tencent's DTS on one machine: it writes a real MySQL's binlog as a subscription's messages."""
