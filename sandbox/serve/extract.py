"""From an MCP ``CallToolResult`` to the contract's result value (AIP-32 ``result_extract``).

The document that the JSONPath is applied to is ``structuredContent`` when the server sends it, else the first text
content parsed as JSON (B0-12). Text that is not JSON is a result only for a contract whose output is a string; a
contract that says ``type: string`` always gets the text itself, so that the text ``123`` does not become a number.
A result of images, audio or embedded resources alone has no value beside its content: it is ``null``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sandbox import jsontext
from sandbox.errors import ServerFault
from sandbox.spec.extract import segments
from sandbox.spec.model import Binding

_NOTHING: Final = object()


class Extractor:
    """Takes the contract's value out of results of one binding.

    Args:
        binding: the driver's entry; its ``result_extract`` was checked when the driver was loaded.
    """

    def __init__(self, binding: Binding) -> None:
        self._name = binding.tool_name
        self._expression = binding.result_extract
        self._wants_text = binding.contract.outputs.get("type") == "string"
        self._path = segments(binding.result_extract)

    def value(self, result: Mapping[str, Any]) -> Any:
        """Return the extracted value.

        Raises:
            ServerFault: ``CALL-020`` there is no document, ``CALL-021`` the path finds nothing in it.
        """
        document = self._document(result)
        value = _at(document, self._path)
        if value is _NOTHING:
            raise ServerFault(
                "CALL-021",
                f"`{self._name}` answered without `{self._expression}`; the answer has {_paths(document)}",
                "correct `result_extract` in DRIVER.md",
            )
        return value

    def _document(self, result: Mapping[str, Any]) -> Any:
        structured = result.get("structuredContent")
        if structured is not None:
            return structured
        text = first_text(result)
        if text is None and result.get("content") and not self._path:
            return None  # whether the contract takes that is for validation to say
        if text is None:
            raise ServerFault(
                "CALL-020",
                f"`{self._name}` answered with neither structuredContent nor text",
                "bind a tool whose result the contract can describe",
            )
        if self._wants_text and not self._path:
            return text
        try:
            return jsontext.parse(text.encode("utf-8", "surrogatepass"))
        except jsontext.JsonTextError:
            if not self._path and not self._wants_text:
                return {"text": text}
            raise ServerFault(
                "CALL-020",
                f"`{self._name}` answered with text that is not JSON",
                "declare `outputs: {type: string}` in the contract, or leave `result_extract` out",
            ) from None


def _at(document: Any, path: tuple[str | int, ...]) -> Any:
    """Return what a path of the fragment names (RFC 9535 §2.3: name and index selectors), or ``_NOTHING``."""
    for step in path:
        if isinstance(step, str):
            document = document.get(step, _NOTHING) if isinstance(document, Mapping) else _NOTHING
        else:
            document = document[step] if isinstance(document, list) and step < len(document) else _NOTHING
        if document is _NOTHING:
            return _NOTHING
    return document


def first_text(result: Mapping[str, Any]) -> str | None:
    """Return the text of the first text content block, or ``None``."""
    for block in result.get("content") or ():
        if isinstance(block, Mapping) and block.get("type") == "text" and isinstance(block.get("text"), str):
            text: str = block["text"]
            return text
    return None


def _paths(document: Any) -> str:
    if isinstance(document, Mapping):
        names = ", ".join(f"`$.{key}`" for key in list(document)[:8])
        return names or "no members"
    return f"a {type(document).__name__}"
