"""Tables and texts as functions of result rows."""
