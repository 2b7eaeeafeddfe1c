"""Raw tables as the benchmark of storage makes them, brings to their final form, and reads them."""
