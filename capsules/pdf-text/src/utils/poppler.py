"""Reads what pdfinfo and pdftotext print."""

from dataclasses import dataclass

# What pdfinfo calls the parts of the metadata, and what the answer calls them.
METADATA = {
    "Title": "title",
    "Subject": "subject",
    "Keywords": "keywords",
    "Author": "author",
    "Creator": "creator",
    "Producer": "producer",
    "CreationDate": "created",
    "ModDate": "modified",
    "Page size": "page_size",
    "PDF version": "pdf_version",
}
# Longer ones are cut: somebody's whole text may stand there.
VALUE_CHARACTERS_MAX = 2_000

# How its messages begin where the file needs a password.
PASSWORD_WANTED = "Incorrect password"


@dataclass
class Facts:
    """The lines of pdfinfo, by their names."""

    values: dict[str, str]
    pages: int

    @classmethod
    def of(cls, printed):
        values = {}
        for line in printed.splitlines():
            name, colon, value = line.partition(":")
            if colon and value.strip():
                # A title may hold a line feed and whatever follows: what pdfinfo itself says of the pages comes later.
                values[name] = value.strip()
        return cls(values, int(values["Pages"]))


def metadata(facts):
    """What the document says of itself, under the names of the answer."""
    found = {ours: facts.values.get(theirs, "") for theirs, ours in METADATA.items()}
    return {name: value[:VALUE_CHARACTERS_MAX] for name, value in found.items() if value}


def page_range(pages, first, last, pages_max):
    """The first and the last page to read; ValueError says why there is none."""
    last = min(last or pages, pages)
    if first > pages:
        raise ValueError(f"first_page is {first}, and the document has {pages} pages")
    if last < first:
        raise ValueError(f"last_page is {last}, before first_page, which is {first}")
    if last - first >= pages_max:
        raise ValueError(
            f"pages {first} to {last} are {last - first + 1:,}, and {pages_max:,} can be read at once: "
            "call once for each part, with first_page and last_page"
        )
    return first, last


def pages_of(text, count):
    """The text of each of the `count` pages: a form feed ends a page."""
    pages = text.split("\f")[:count]
    return pages + [""] * (count - len(pages))


def refusal(name, errors):
    """Code and message for a file that Poppler cannot open."""
    if PASSWORD_WANTED in errors:
        return "pdf_encrypted", f"'{name}' opens only with a password: take the protection off before"
    lines = [line for line in errors.splitlines() if line.strip()]
    reason = lines[-1] if lines else "no reason given"
    return "pdf_unreadable", f"'{name}' is no PDF, or damaged beyond reading: {reason}"
