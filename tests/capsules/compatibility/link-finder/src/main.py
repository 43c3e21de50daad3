"""Finds a download by the words of a query, in a fixed list."""

LINKS = [
    "https://downloads.example.org/penguins-1.0.zip",
    "https://downloads.example.org/penguins-1.0.tar.gz",
    "https://mirror.example.net/penguins-1.0.zip",
]


def execute(inputs: dict) -> dict:
    words = inputs["query"].lower().split()
    extension, domain = inputs.get("required_extension", ""), inputs.get("domain_hint", "")
    found = [link for link in LINKS
             if link.endswith(extension) and domain in link and all(word in link for word in words)]
    if not found:
        return {"found": False, "url": None, "reasoning": "no link has all words"}
    metadata = {"content_type": "application/zip", "file_size_mb": 1.5, "status_code": 200}
    return {"found": True, "url": found[0], "metadata": metadata, "reasoning": "the first link with all words"}
