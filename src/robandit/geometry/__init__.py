"""Ridge regression, ellipsoids, their intersections, and decision sets: arrays in, arrays out."""
