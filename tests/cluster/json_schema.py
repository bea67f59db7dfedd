#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""json_schema.py SCHEMA [DOCUMENT]: is the document (stdin) of the schema?

Knows the keywords that our schemas use and refuses a schema with others.
Where python3-jsonschema is installed it is asked too, and must agree. Exit
codes: 0 it is; 1 it is not, with the places; 2 the schema is not understood.
"""
import json
import re
import sys

# Those that say nothing about a document.
SILENT = {"$schema", "$defs", "title", "description"}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool,
         "null": type(None)}


def is_type(value, name):
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if name == "integer":
        return is_type(value, "number") and value == int(value)
    return isinstance(value, TYPES[name])


def same(a, b):
    return type(a) is type(b) and a == b


class Schema:
    def __init__(self, root):
        self.root = root

    def resolve(self, ref):
        if not ref.startswith("#/"):
            raise LookupError(f"$ref {ref}")
        at = self.root
        for part in ref[2:].split("/"):
            at = at[part]
        return at

    def check(self, value, schema, path="$"):
        """The places where value is not of schema, each with its reason."""
        for key, arg in schema.items():
            if key in SILENT:
                continue
            handler = getattr(self, "on_" + key.lstrip("$"), None)
            if not handler:
                raise LookupError(f"keyword {key}")
            yield from handler(value, arg, schema, path)

    def on_ref(self, value, arg, schema, path):
        yield from self.check(value, self.resolve(arg), path)

    def on_type(self, value, arg, schema, path):
        names = arg if isinstance(arg, list) else [arg]
        if not any(is_type(value, n) for n in names):
            yield f"{path}: {json.dumps(value)} is not {' or '.join(names)}"

    def on_const(self, value, arg, schema, path):
        if not same(value, arg):
            yield f"{path}: {json.dumps(value)} is not {json.dumps(arg)}"

    def on_enum(self, value, arg, schema, path):
        if not any(same(value, a) for a in arg):
            yield f"{path}: {json.dumps(value)} is none of {json.dumps(arg)}"

    def on_minimum(self, value, arg, schema, path):
        if is_type(value, "number") and value < arg:
            yield f"{path}: {value} is less than {arg}"

    def on_maximum(self, value, arg, schema, path):
        if is_type(value, "number") and value > arg:
            yield f"{path}: {value} is more than {arg}"

    def on_pattern(self, value, arg, schema, path):
        if isinstance(value, str) and not re.search(arg, value):
            yield f"{path}: {json.dumps(value)} is not like {arg}"

    def on_required(self, value, arg, schema, path):
        for key in arg if isinstance(value, dict) else []:
            if key not in value:
                yield f"{path}: no {key}"

    def on_properties(self, value, arg, schema, path):
        for key, sub in arg.items() if isinstance(value, dict) else []:
            if key in value:
                yield from self.check(value[key], sub, f"{path}.{key}")

    def on_additionalProperties(self, value, arg, schema, path):
        if arg is not False:
            raise LookupError("additionalProperties other than false")
        known = schema.get("properties", {})
        for key in value if isinstance(value, dict) else []:
            if key not in known:
                yield f"{path}: {key} is not in the schema"

    def on_items(self, value, arg, schema, path):
        for i, v in enumerate(value) if isinstance(value, list) else []:
            yield from self.check(v, arg, f"{path}[{i}]")

    def on_maxItems(self, value, arg, schema, path):
        if isinstance(value, list) and len(value) > arg:
            yield f"{path}: more than {arg} items"


def others(document, schema):
    """What python3-jsonschema says, or None where there is none of it."""
    try:
        import jsonschema
    except ImportError:
        return None
    validator = getattr(jsonschema, "Draft202012Validator", None)
    if not validator:
        return None
    validator.check_schema(schema)
    return [e.message for e in validator(schema).iter_errors(document)]


def main(argv):
    with open(argv[1]) as f:
        schema = json.load(f)
    if len(argv) > 2:
        with open(argv[2]) as f:
            document = json.load(f)
    else:
        document = json.load(sys.stdin)
    try:
        errors = list(Schema(schema).check(document, schema))
    except LookupError as e:
        print(f"schema: {e} is not understood")
        return 2
    second = others(document, schema)
    for e in errors:
        print(e)
    if second is not None and bool(second) != bool(errors):
        print("python3-jsonschema does not agree:", *second, sep="\n")
        return 1
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
