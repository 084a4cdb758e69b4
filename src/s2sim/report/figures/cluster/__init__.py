"""Pictures of clusters: a graph as plain arrays becomes parts, parts become boxes and lines, those are drawn."""
