"""Files of flows, read whole and validated, every problem with its line (`flow_file`), into `flow_config`.

`host_file` defines what pushed configuration may use of a host.
"""
