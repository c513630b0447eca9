"""Reading pinned records in columns, for programs that compute: Arrow, Parquet, Spark."""
