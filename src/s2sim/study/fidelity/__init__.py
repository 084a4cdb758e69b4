"""How sure times are: fits of a library's constants to measured points, and the bands that follow from them."""
