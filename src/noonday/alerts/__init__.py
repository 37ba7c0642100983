"""Alerts: incidents and missing runs become alerts, alerts become notices.

Who decides. The transaction that settles a failed execution also writes an incident (`transitions.settling`), and so does the
transaction that gives up an occurrence (`transitions.fire_batch`). A crash therefore loses no incident. The incident consumer
(`incident_consumer`) turns incidents into alerts. A run that never happens leaves no incident, so the dead-man's switch
(`dead_mans_switch`) searches for overdue entries, for runs that take longer than usual, and for jobs that have succeeded
again; `lateness` excludes work that a pause or a limit blocks on purpose. The alert aggregator (`aggregator`) merges alerts
when many jobs of a tenant fail at once. `model.alert` defines alerts and the events that open them. Users list and acknowledge
alerts through `alert_service`.

What may be trusted, and for how long. An incident stays until one process consumes it; the same transaction writes the alert
and the alert events. An observation of the dead-man's switch is repeated for as long as its cause lasts; its dedup key shows
whether it was recorded before.

What each failure does. If an incident consumer dies before its transaction commits, the next one consumes the same incidents;
after the commit nothing is left to do. If several consumers or switches run at once, they may repeat work, but they never open
the same alert twice.
"""
