"""Networks made of the kernel's namespaces, veth pairs, bridges and token buckets, and taken down without a trace."""
