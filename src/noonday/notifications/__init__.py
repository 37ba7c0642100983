"""Notifications: accept them, publish them at their time, send them through providers, and record what came of them."""
