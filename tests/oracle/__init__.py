"""A stand-in for an Oracle server: real drivers connect to it over Oracle's own protocol.

No Oracle server can be had where these tests run. python-oracledb (thin) and ojdbc speak TNS and TTC to this one.
A model of a database stands after it (``answers.Database``).
"""
