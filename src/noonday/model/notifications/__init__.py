"""Notifications: push, SMS and email to the users of an application."""
