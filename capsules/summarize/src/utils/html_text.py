"""The text of an HTML page, with the structure that plain text allows."""

import re

from bs4 import BeautifulSoup, NavigableString

# Elements that readers do not see.
HIDDEN = ["script", "style", "noscript", "template", "svg", "head", "title"]
# Elements that are separated from their surroundings.
BLOCKS = [
    "address", "article", "aside", "blockquote", "dd", "details", "div", "dl", "dt", "fieldset", "figcaption", "figure",
    "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "main", "nav", "ol", "p", "pre", "section",
    "summary", "table", "ul",
]  # fmt: skip
# Elements that begin a line in their block.
LINES = ["li", "tr", "caption"]


def text_of_html(content):
    """The text of `content`, HTML in its declared encoding; the title is the first line."""
    soup = BeautifulSoup(content, "html.parser")
    title = " ".join(soup.title.get_text().split()) if soup.title else ""
    for hidden in soup(HIDDEN):
        hidden.decompose()
    for piece in soup.find_all(string=True):
        if type(piece) is NavigableString and not piece.find_parent("pre"):
            piece.replace_with(re.sub(r"\s+", " ", piece))
    for element in soup(["br", "td", "th", *LINES, *BLOCKS]):
        set_apart(element)
    text = "\n".join(line.strip(" ") for line in soup.get_text().split("\n"))
    text = re.sub(r"^(-|#+)\s+(?=\S)", r"\1 ", text, flags=re.MULTILINE)
    return text if text.strip(" \n#").startswith(title) else f"{title}\n\n{text}"


def set_apart(element):
    """Puts line feeds and a Markdown mark around an element."""
    if element.name == "br":
        element.replace_with("\n")
    elif element.name in ("td", "th"):
        element.append("\t")
    elif element.name in LINES:
        element.insert(0, "\n- " if element.name == "li" else "\n")
    else:
        heading = re.fullmatch("h([1-6])", element.name)
        element.insert(0, "\n\n" + ("#" * int(heading[1]) + " " if heading else ""))
        element.append("\n\n")
