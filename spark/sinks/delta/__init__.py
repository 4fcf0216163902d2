"""The Delta sink: tables by path under one folder."""
