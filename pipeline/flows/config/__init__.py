"""Files of flows: read whole and checked, every problem with its line (`read`, `positions`), into `model`.

`hostfile` says what pushed configuration may use of a host.
"""
