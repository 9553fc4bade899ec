"""What tests of the parts of `unspool-bench` ask for, and where they find it in a table."""

import argparse

from unspool_studies.bench import options


def plan(*arguments):
    """The plan of these words of a command line."""
    parser = argparse.ArgumentParser()
    options.add_options(parser)
    return options.plan_of(parser.parse_args(arguments))


def column(table, name):
    """The cells of a column, by its name."""
    place = list(table.columns).index(name)
    return [row[place] for row in table.rows]
