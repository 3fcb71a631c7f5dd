"""The recipe's JSON Schema, for editors. ``recipes/schema/recipe.schema.json`` is its committed copy."""

from __future__ import annotations

import json
from typing import Any

from recipes.models import Recipe


def recipe_schema() -> str:
    """JSON text, ending with a new line. A recipe that ``extends`` another may leave out what that one says."""
    schema: dict[str, Any] = Recipe.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Engineworks recipe"
    schema["properties"]["extends"] = {"type": "string", "description": "Path of a recipe to start from."}
    required = schema.pop("required")
    schema["anyOf"] = [{"required": ["extends"]}, {"required": required}]
    return json.dumps(schema, indent=2) + "\n"
