"""Parses the output of pdfinfo and pdftotext."""

from dataclasses import dataclass

# The fields of pdfinfo, and their names in the answer.
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
# Longer values are cut: a document may put its whole text there.
VALUE_CHARACTERS_MAX = 2_000

# The beginning of the message about a missing password.
PASSWORD_WANTED = "Incorrect password"


@dataclass
class Facts:
    """The lines of pdfinfo, by name."""

    values: dict[str, str]
    pages: int

    @classmethod
    def of(cls, printed):
        values = {}
        for line in printed.splitlines():
            name, colon, value = line.partition(":")
            if colon and value.strip():
                # A title may contain a line feed and any text; pdfinfo's own lines about pages come later.
                values[name] = value.strip()
        return cls(values, int(values["Pages"]))


def metadata(facts):
    """The document's metadata, with the names of the answer."""
    found = {ours: facts.values.get(theirs, "") for theirs, ours in METADATA.items()}
    return {name: value[:VALUE_CHARACTERS_MAX] for name, value in found.items() if value}


def page_range(pages, first, last, pages_max):
    """The first and the last page to read. Raises ValueError for an invalid range."""
    last = min(last or pages, pages)
    if first > pages:
        raise ValueError(f"first_page is {first}, but the document has {pages} pages")
    if last < first:
        raise ValueError(f"last_page is {last}, before first_page, which is {first}")
    if last - first >= pages_max:
        raise ValueError(
            f"{last - first + 1:,} pages, {first} to {last}; expected at most {pages_max:,}: "
            "call once for each part, with first_page and last_page"
        )
    return first, last


def pages_of(text, count):
    """The text of each of the `count` pages: a form feed ends a page."""
    pages = text.split("\f")[:count]
    return pages + [""] * (count - len(pages))


def refusal(name, errors):
    """Code and message for a file that Poppler cannot read."""
    if PASSWORD_WANTED in errors:
        return "pdf_encrypted", f"'{name}' requires a password: remove the protection first"
    lines = [line for line in errors.splitlines() if line.strip()]
    reason = lines[-1] if lines else "no reason given"
    return "pdf_unreadable", f"'{name}' is not a PDF, or is damaged: {reason}"
