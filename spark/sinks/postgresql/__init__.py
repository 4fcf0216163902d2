"""The PostgreSQL sink: tables that a tenant's applications may ask as any other."""
