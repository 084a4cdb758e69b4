"""Public conformance kits for plug-in authors."""
