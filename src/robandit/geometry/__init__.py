"""Ridge regression, ellipsoids and their intersections: arrays in, arrays out."""
