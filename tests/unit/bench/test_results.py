"""The page of figures: a part measured again replaces its own section alone."""

from bench.results import measured_now, with_sections

ORDER = ("catch-up", "snapshot", "sink")
PAGE = """# Results

Something older.

## Catch-up: a log

old figures

## Sink: a topic

| a | table |
"""


def test_a_section_is_replaced_and_the_others_stay() -> None:
    page = with_sections(PAGE, {"catch-up": "## Catch-up: a log\n\nnew figures\n"}, ORDER)

    assert "old figures" not in page
    assert "Something older" not in page
    assert page.index("new figures") < page.index("## Sink: a topic\n\n| a | table |")
    assert with_sections(page, {}, ORDER) == page


def test_a_new_section_stands_at_its_place() -> None:
    page = with_sections(PAGE, {"snapshot": "## Snapshot: a table\n\nfigures\n"}, ORDER)

    assert [line for line in page.splitlines() if line.startswith("## ")] == [
        "## Catch-up: a log",
        "## Snapshot: a table",
        "## Sink: a topic",
    ]


def test_a_title_of_several_words_is_that_of_its_part() -> None:
    page = with_sections(PAGE, {"many-tables": "## Many tables: a batch\n\nfigures\n"}, (*ORDER, "many-tables"))

    assert "## Many tables: a batch" in with_sections(page, {}, (*ORDER, "many-tables"))


def test_a_section_says_what_it_was_measured_on() -> None:
    title, empty, line, *rest = measured_now("## Sink: a topic\n\nfigures\n", load_before=0.25).splitlines()

    assert (title, empty, rest) == ("## Sink: a topic", "", ["", "figures"])
    assert line.startswith("Measured on 2")
    assert "load average 0.2 before" in line
