"""Research reports: POET, RACE and FACT (seed 003). Rows of files to scores; every stage can be run alone."""
