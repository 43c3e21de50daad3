"""The prompts of src/ai: Jinja2 templates, rendered with the inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import CapsuleInvalid


def prompt(capsule: Path, name: str, inputs: Mapping[str, Any]) -> str | None:
    """The rendered prompt in the file ``name`` of ``capsule``; None if the file is missing.

    Templates are sandboxed, and an unknown variable is an error. Raises CapsuleInvalid.
    """
    try:
        text = (capsule / name).read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CapsuleInvalid(f"{name} is unreadable", [str(error)]) from None
    # A text without marks needs no engine, and no import of it.
    return _filled(text, name, inputs) if "{" in text else text.strip()


def _filled(text: str, name: str, inputs: Mapping[str, Any]) -> str:
    from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined)
    try:
        return environment.from_string(text).render(dict(inputs)).strip()
    except TemplateSyntaxError as error:
        raise CapsuleInvalid(f"{name} is not a valid template", [f"line {error.lineno}: {error.message}"]) from None
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise CapsuleInvalid(f"cannot render {name}", [str(error)]) from None
