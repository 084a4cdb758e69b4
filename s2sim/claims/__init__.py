"""Published claims, rebuilt and judged."""
