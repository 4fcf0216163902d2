"""Settings of the ClickHouse sink: ``warehouses.clickhouse`` of the job's settings. The commands know them too."""

from libs.clickhouse.settings import ClickhouseWarehouse

Settings = ClickhouseWarehouse
