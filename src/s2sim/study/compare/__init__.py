"""The comparison of reducers on a cluster: the run, its notes and its verdict."""
