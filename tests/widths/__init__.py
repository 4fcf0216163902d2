"""The widths of the code: ``make widths`` prints wide classes and long functions, ``make lint`` holds them to ceilings."""
