"""Extracts the text of a PDF with Poppler's pdfinfo and pdftotext.

utils/poppler.py parses the output of these programs.
"""

import subprocess

from aod import CapsuleError

from src.utils.poppler import Facts, metadata, page_range, pages_of, refusal

# Bounds the answer, which has about 70 bytes for each page.
PAGES_MAX = 2_000


def execute(inputs, ctx):
    """Writes the text of `pdf` as a whole and page by page; returns its metadata."""
    pdf = ctx.input_file(inputs["pdf"])
    info = poppler(pdf, "pdfinfo", "-isodates", "-enc", "UTF-8", pdf)
    facts = Facts.of(info.stdout)
    first, last = wanted_pages(facts, inputs)

    whole = ctx.output_file("text.txt")
    layout = ["-layout"] if inputs["keep_layout"] else []
    taken = poppler(pdf, "pdftotext", "-enc", "UTF-8", "-f", str(first), "-l", str(last), *layout, pdf, whole)
    pages = []
    for number, text in enumerate(pages_of(whole.read_text("utf-8"), last - first + 1), first):
        page = ctx.output_file(f"pages/{number:04}.txt")
        page.write_text(text, "utf-8")
        pages.append({"number": number, "text": page, "characters": sum(not sign.isspace() for sign in text)})
    ctx.log.info(f"read {len(pages)} of {facts.pages} pages")
    return {
        "text": whole,
        "pages": pages,
        "page_count": facts.pages,
        "has_text": any(page["characters"] for page in pages),
        "is_damaged": bool(info.stderr or taken.stderr),
        "metadata": metadata(facts),
    }


def poppler(pdf, *command):
    """Runs one of Poppler's programs; `stderr` has its warnings. Raises CapsuleError if it fails."""
    ended = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", errors="replace")
    if ended.returncode != 0:
        raise CapsuleError(*refusal(pdf.name, ended.stderr))
    return ended


def wanted_pages(facts, inputs):
    try:
        return page_range(facts.pages, inputs["first_page"], inputs.get("last_page"), PAGES_MAX)
    except ValueError as problem:
        raise CapsuleError("pages_unfit", str(problem)) from None
