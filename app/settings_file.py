"""The JSON file named by `CONFIG_FILE`.

It holds settings in lower case, or in the structure of the specification's section 7.6
(`{"memory": {"rag": {"enabled": …, "memory_evaluation": {…}}}}`), or both.
"""

import json
import os
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from app.errors import SettingsError

_EVALUATION_KEYS = {"enabled", "model", "url", "apikey", "prompt"}


def read_config_file(path: Path, known: AbstractSet[str]) -> dict[str, Any]:
    """Settings by lower-case name.

    Args:
        path: of the file.
        known: every setting there is, in lower case.

    Raises:
        SettingsError: the file cannot be read, or holds what is no setting.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SettingsError(
            f"Wrong setting: CONFIG_FILE {path} cannot be read: {os.strerror(error.errno or 0)}"
        ) from None
    except ValueError:
        raise SettingsError(f"Wrong setting: CONFIG_FILE {path} is not JSON in UTF-8") from None
    if not isinstance(content, dict):
        raise SettingsError(f"Wrong setting: CONFIG_FILE {path} must hold a JSON object")
    flat = {key: value for key, value in content.items() if key != "memory"}
    flat |= _from_specification(path, content.get("memory", {}))
    unknown = sorted(flat.keys() - known)
    if unknown:
        raise SettingsError(f"Wrong setting: CONFIG_FILE {path} holds an unknown name: {unknown[0]}")
    return flat


def _from_specification(path: Path, memory: Any) -> dict[str, Any]:
    outer = _object(path, "memory", memory, {"rag"})
    rag = _object(path, "memory.rag", outer.get("rag", {}), {"enabled", "memory_evaluation"})
    evaluation = _object(
        path, "memory.rag.memory_evaluation", rag.get("memory_evaluation", {}), _EVALUATION_KEYS
    )
    names = {
        "enabled": "evaluation_enabled",
        "model": "evaluation_model",
        "url": "evaluation_base_url",
        "apikey": "evaluation_api_key",
        "prompt": "evaluation_prompt",
    }
    flat = {names[key]: value for key, value in evaluation.items()}
    return flat | ({"rag_enabled": rag["enabled"]} if "enabled" in rag else {})


def _object(path: Path, name: str, value: Any, known: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SettingsError(f"Wrong setting: CONFIG_FILE {path}: {name} must be an object")
    unknown = sorted(value.keys() - known)
    if unknown:
        raise SettingsError(f"Wrong setting: CONFIG_FILE {path} holds an unknown name: {name}.{unknown[0]}")
    return value
