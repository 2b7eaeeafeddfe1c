"""Dashboards as files.

Modules in reading order: `dashboard_file` (the model and the reader of its YAML), `dashboard_store` (a folder with
versions, over the dashboards of the package in `shipped`), `grafana_import` and `grafana_export`."""
