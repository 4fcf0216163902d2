"""The stand-in for Oracle (``libs.stand_ins.oracle``) with parts of the reader, as tests need them together."""
