"""Tasks: jobs whose target is a webhook."""
