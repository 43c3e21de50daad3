"""Results of MCP tools for the model: bounded, and without binary data."""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
import threading
from pathlib import Path
from typing import Any

from mcp_types import AudioContent, BlobResourceContents, CallToolResult, EmbeddedResource, ImageContent, TextContent

from ..errors import ToolError

#: Maximum bytes of a result for the model. Source: the maximum text in a payload.
RESULT_BYTES_MAX = 64 * 1024


class Findings:
    """The directory of files from tools, with unique names."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()

    def keep(self, tool: str, content: bytes, media_type: str | None) -> str:
        """Writes ``content`` and returns its name: the tool's name, a number, and the extension of the type."""
        ending = mimetypes.guess_extension(media_type or "") or ".bin"
        with self._lock:
            self._directory.mkdir(parents=True, exist_ok=True)
            number = sum(1 for _ in self._directory.iterdir()) + 1
            name = f"{tool}-{number}{ending}"
            (self._directory / name).write_bytes(content)
        return name


def result_for_model(tool: str, result: CallToolResult, findings: Findings) -> Any:
    """The result for the model. Raises ToolError if the tool reports an error.

    Prefers structured content to texts, in which servers repeat it. Images and the like become files, which an
    answer or a call of another capsule may name.
    """
    texts, files = [], []
    for block in result.content:
        if isinstance(block, TextContent):
            texts.append(block.text)
        elif isinstance(block, (ImageContent, AudioContent)):
            files.append(_kept(tool, block.data, block.mime_type, findings))
        elif isinstance(block, EmbeddedResource):
            resource = block.resource
            if isinstance(resource, BlobResourceContents):
                files.append(_kept(tool, resource.blob, resource.mime_type, findings))
            else:
                texts.append(resource.text)
        else:
            texts.append(block.model_dump_json(by_alias=True, exclude_none=True))
    text = "\n".join(texts)
    if result.is_error:
        raise ToolError(bounded(text or "the tool failed without a message"))
    told = text if result.structured_content is None else result.structured_content
    if files:
        told = {"files": files, **({"result": told} if told else {})}
    return _bounded_json(told)


def _kept(tool: str, content: str, media_type: str | None, findings: Findings) -> str:
    try:
        return findings.keep(tool, base64.b64decode(content, validate=True), media_type)
    except binascii.Error as error:
        raise ToolError(f"the tool returned a file that is not base64: {error}") from None


def _bounded_json(value: Any) -> Any:
    if isinstance(value, str):
        return bounded(value)
    text = json.dumps(value, ensure_ascii=False)
    return value if len(text.encode()) <= RESULT_BYTES_MAX else bounded(text)


def bounded(text: str) -> str:
    """``text``, or its beginning with a note about the missing rest."""
    content = text.encode(errors="replace")
    if len(content) <= RESULT_BYTES_MAX:
        return text
    beginning = content[:RESULT_BYTES_MAX].decode(errors="ignore")
    return f"{beginning}\n[the first {RESULT_BYTES_MAX} of {len(content)} bytes; the rest is omitted]"
