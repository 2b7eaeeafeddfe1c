"""Discovery of scrape targets, as in Prometheus: lists by HTTP, files, DNS, Consul, Kubernetes.

Read `scrape_job` (labels of a job's targets, relabelling), `discovery` (base), then one file for each kind;
`scrape_config` reads the configuration, `discovered_targets` runs all discoveries of an agent.
"""
