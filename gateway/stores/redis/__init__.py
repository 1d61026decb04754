"""What all processes and replicas share, in Redis: limits, keys, tenants, usage, news."""
