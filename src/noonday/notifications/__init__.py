"""Notifications: accepts them, sends them through providers, and records what became of them."""
