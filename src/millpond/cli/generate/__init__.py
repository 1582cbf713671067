"""`millpond generate`: ready files for what stands beside a node, Grafana and Prometheus, and made-up meter readings.

The files name only metrics that are in `millpond.serve.metric_table`; a test holds them to it.
"""
