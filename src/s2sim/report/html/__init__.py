"""Pages of HTML in one file, which load nothing."""
