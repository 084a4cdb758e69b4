"""From a recording and a cluster to result rows."""
