"""A stand-in for an Oracle server: real drivers connect to it over Oracle's own protocol.

No Oracle server can be had where these tests run. python-oracledb (thin) and ojdbc speak TNS and TTC to this one.
``database.ModelDatabase`` is its database: a model of tables, transactions and redo. Python (``model.Model``) or SQL changes
it.
"""
