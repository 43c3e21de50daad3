"""A summary as a Markdown file."""


def markdown_of(answer):
    """The title, the summary and its key points; then those of each document, if there are several."""
    blocks = [f"# {on_one_line(answer['title'])}", *body(answer)]
    if len(answer["documents"]) > 1:
        for document in answer["documents"]:
            blocks += [f"## {on_one_line(document['title'])}", f"Document: {document['document']}", *body(document)]
    return "\n\n".join(blocks) + "\n"


def body(summary):
    return [summary["summary"].strip(), "\n".join(f"- {on_one_line(point)}" for point in summary["key_points"])]


def on_one_line(text):
    return " ".join(text.split())
