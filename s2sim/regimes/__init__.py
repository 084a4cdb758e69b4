"""Where in the plane of rate and density which reducer wins."""
