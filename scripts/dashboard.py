"""Make the W&B views that compare seeds and variants: `python scripts/dashboard.py --project golf`.

A workspace and a report: curves with mean and standard deviation over seconds, bars by variant, bytes against score,
the computed table. `--print` writes their specification as JSON instead, without an account or a network.
"""

import argparse
import importlib.util
import json
import os
import sys


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project", default=os.environ.get("WANDB_PROJECT", "golf"))
    parser.add_argument(
        "--entity", default=os.environ.get("WANDB_ENTITY"), help="team or user (default: the key's own)"
    )
    parser.add_argument("--print", action="store_true", help="print the specification and send nothing")
    a = parser.parse_args()
    if importlib.util.find_spec("wandb_workspaces") is None:
        print("error: this needs the package wandb-workspaces: `pip install 'golf[wandb]'`.", file=sys.stderr)
        return 2
    from golf.jobs.track import dashboard

    if a.print:
        print(json.dumps(dashboard.specification(a.entity or "ENTITY", a.project), indent=2))
        return 0
    import wandb

    try:
        entity = a.entity or wandb.Api().default_entity or ""
        print(dashboard.workspace(entity, a.project).save().url)
        print(dashboard.report(entity, a.project).save().url)
    except Exception as error:  # of the client, which raises all kinds
        print(f"error: W&B did not take the views ({' '.join(str(error).split())}).", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
