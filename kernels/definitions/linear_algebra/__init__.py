"""Linear algebra: matrix products, contractions, determinants, and scaled sums of products."""
