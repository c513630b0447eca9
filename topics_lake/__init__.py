"""Records on their way out into tables of files, and back in: exports, Spark, imports."""
