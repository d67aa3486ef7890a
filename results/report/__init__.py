"""Reports: `build.build_report` makes one `Report`, and each format only renders it."""
