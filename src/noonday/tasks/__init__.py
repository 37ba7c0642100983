"""Tasks: jobs whose target is a webhook, in the words of `/v1/tasks`.

A task is a job like any other, on the same timeline and in the same store; only what it is called differs. What a person
says (`wire.TaskSpec`) becomes a job (`translating.to_job_spec`), goes over the same desk as every job (`desk.TaskDesk`),
and is shown as what was said (`viewing.task_view`); intervals in words are understood in `phrases`.
Calls of all tasks are found, and made once more, in `calls`; those that were given up are dealt with in `dead_letters`.
"""
