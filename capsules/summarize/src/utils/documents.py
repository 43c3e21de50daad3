"""The text of documents: PDF with Poppler, HTML with Beautiful Soup, other formats unchanged."""

import re
import subprocess
from dataclasses import dataclass

# A PDF file may begin with other bytes. Source: ISO 32000-1, annex H, note 13.
PDF_MARK, PDF_MARK_WITHIN = b"%PDF-", 1024
HTML_SUFFIXES = (".html", ".htm", ".xhtml")
# Comments have only one end in this pattern: with alternatives, many comments would take forever.
HTML_MARK = re.compile(
    rb"\s*(<\?xml[^>]*>\s*)?(<!--(?:(?!-->).)*-->\s*)*<(!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL
)
# The beginning of Poppler's message about a missing password.
PASSWORD_WANTED = "Incorrect password"
# Characters that no text contains: control characters except tab, line feed, form feed and carriage return.
NO_TEXT = re.compile(r"[\x00-\x08\x0b\x0e-\x1f]")


class Unreadable(Exception):
    """A document without readable text; `code` is an error code."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Document:
    """A document's name and text: the pages of a PDF, or one page for other formats."""

    name: str
    pages: list[str]
    is_pdf: bool

    @property
    def text(self):
        return "\n\n".join(page for page in self.pages if page)


def read(path, name, keep_layout=False):
    """The Document in the file `path`; `keep_layout` keeps the columns of a PDF in place, with spaces.

    Detects the format by content: PDF, HTML, or text in UTF-8, UTF-16 with a mark, or Windows-1252. Raises Unreadable.
    """
    content = path.read_bytes()
    begins_late = path.suffix.lower() == ".pdf" and PDF_MARK in content[:PDF_MARK_WITHIN]
    is_pdf = begins_late or content.startswith(PDF_MARK)
    if is_pdf:
        pages = pages_of_pdf(path, name, keep_layout)
    elif path.suffix.lower() in HTML_SUFFIXES or HTML_MARK.match(content):
        from src.utils.html_text import text_of_html

        pages = [text_of_html(content)]
    else:
        pages = [decoded(content, name)]
    pages = [tidy(page) for page in pages]
    if not any(pages):
        reason = "its pages are images, which require text recognition" if is_pdf else "it is empty"
        raise Unreadable("document_without_text", f"'{name}' has no text: {reason}")
    return Document(name, pages, is_pdf)


def pages_of_pdf(path, name, keep_layout):
    layout = ["-layout"] if keep_layout else []
    ended = subprocess.run(["pdftotext", "-enc", "UTF-8", *layout, path, "-"], capture_output=True)
    if ended.returncode == 0:
        # A form feed ends each page.
        return ended.stdout.decode("utf-8", errors="replace").split("\f")[:-1]
    errors = ended.stderr.decode("utf-8", errors="replace").strip()
    if PASSWORD_WANTED in errors:
        raise Unreadable("document_encrypted", f"'{name}' requires a password: remove the protection first")
    reason = errors.splitlines()[-1] if errors else "no reason given"
    raise Unreadable("document_unreadable", f"'{name}' is a damaged PDF: {reason}")


def decoded(content, name):
    """The text of bytes that are neither PDF nor HTML."""
    has_mark = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    for encoding in ["utf-16"] if has_mark else ["utf-8-sig", "windows-1252"]:
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if not NO_TEXT.search(text):
            return text
    raise Unreadable("document_unreadable", f"'{name}' has an unknown format; expected PDF, HTML or text")


def tidy(text):
    """`text` without white space at the ends of lines, and with at most one consecutive empty line."""
    lines = [line.rstrip() for line in text.replace("\f", "\n").splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
