"""Files of flows, read whole and validated, every problem with its line (`read`), into `model`.

`hostfile` defines what pushed configuration may use of a host.
"""
