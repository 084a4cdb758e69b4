"""Constants of a library fitted to the few measurements that somebody has of a machine."""
