"""An argument parser with exactly the options of one release of trtllm-build, for tests."""

from __future__ import annotations

import argparse

from builders.trtllm.options import Table


def parser_of(table: Table) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trtllm-build", allow_abbrev=False)
    kinds = {"int": int, "float": float, "str": str}
    for option in table.options.values():
        names = [f"--{name}" for name in (option.name, *option.aliases)]
        if option.kind == "flag":
            parser.add_argument(*names, action="store_true")
        elif option.name == "kv_cache_type":
            parser.add_argument(*names, type=str.lower, choices=option.choices or None)
        else:
            nargs = "+" if option.many else None
            parser.add_argument(*names, type=kinds[option.kind], choices=option.choices or None, nargs=nargs)
    return parser
