"""Cluster mode: roles in one or several processes, on PostgreSQL, Redis, Kafka and etcd."""
