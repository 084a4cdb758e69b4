"""Beyond what was recorded: more ranks or parameters, and how far off that may be."""
