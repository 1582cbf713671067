"""`millpond generate`: ready files for what stands beside a node, Grafana and Prometheus.

They name only metrics that are in `millpond.serve.metric_table`; a test holds them to it.
"""
