"""Programs of Node.js as they are: the data source of Grafana, and the SDK of OpenTelemetry."""
