"""Follows links between the pages in its image, at most `max_steps` of them, and quotes what it has read."""

PAGES = {
    "https://example.org/": ("Penguins are birds.", ["https://example.org/food", "https://example.org/places"]),
    "https://example.org/food": ("Penguins eat fish.", ["https://example.org/"]),
    "https://example.org/places": ("Penguins live in the south.", []),
}


def execute(inputs: dict) -> dict:
    waiting, visited, read = ["https://example.org/"], [], []
    while waiting and len(visited) < inputs.get("max_steps", 10):
        url = waiting.pop(0)
        text, links = PAGES[url]
        visited.append(url)
        read.append(text)
        waiting += [link for link in links if link not in visited + waiting]
    return {"final_summary": " ".join(read), "visited_urls": visited}
