"""Settings of the PostgreSQL sink: ``warehouses.postgresql`` of the job's settings. The commands know them too."""

from libs.postgresql.settings import PostgresqlWarehouse

Settings = PostgresqlWarehouse
