"""The report of a run, made from the files of its folder: one HTML page, and the learning curve as SVG."""
