"""Tasks: jobs whose target is a webhook, as `/v1/tasks` presents them.

A task is an ordinary job, on the same timeline and in the same store; only its API differs. `translating.to_job_spec` converts a
request (`wire.TaskSpec`) into a job, `task_service.TaskService` passes it to the job service, and `viewing.task_view`
converts it back. `phrases` parses intervals such as "every 15 minutes". `calls` lists and resends calls of all tasks, and
`dead_letters` retries and archives calls that failed permanently. `endpoint_disabler` disables endpoints that fail for days.
"""
