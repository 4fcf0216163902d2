"""Tencent DTS subscriptions."""
