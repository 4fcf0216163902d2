"""The English of the project, counted: ``make words`` prints each folder's rates, ``make lint`` holds them to ceilings."""
