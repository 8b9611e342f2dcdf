"""Show runs, curves and verdicts in a browser while runs go on.

The page reads the files of the runs root every few seconds. It needs no network; Ctrl-C ends it.

    golf board                          # prints its address, which has a random token
    golf report lr --html lr.html       # the same page of a sweep as one file to send
    golf board --port 9000              # another port; from elsewhere: ssh -L 9000:127.0.0.1:9000 HOST
    golf board --host 0.0.0.0           # for other machines
    golf board --no-token               # for all accounts of this machine, who may then read runs and write notes
"""

from __future__ import annotations

import secrets

from golf.commands.parsing import CommandParser


def main(arguments: list[str]) -> int:
    """Serve the page until Ctrl-C."""
    args = CommandParser("board", __doc__).parse_intermixed_args(arguments)
    from golf.errors import GolfError
    from golf.lab.cluster.follow import SweepJobs
    from golf.lab.report.board_server import Board, BoardServer, is_this_machine, plotly_file
    from golf.run.folder import runs_root
    from golf.settings.composition import rules_named

    plotly_file()
    root = runs_root()
    board = Board(root, rules_named(args.rules), SweepJobs().latest)
    if args.no_token and not is_this_machine(args.host):
        raise GolfError(f"--no-token serves this machine alone, and {args.host} is more: leave one of the two out.")
    token = "" if args.no_token else secrets.token_urlsafe(16)
    try:
        server = BoardServer((args.host, args.port), board, token)
    except (OSError, OverflowError) as error:
        raise GolfError(f"{args.host}:{args.port} cannot be served ({error}): try another --host or --port.") from error
    there = "" if root.is_dir() else ", which has no run yet,"
    print(f"{root}{there} is shown at {server.url} until Ctrl-C.", flush=True)
    with server:
        server.serve_forever()
    return 0
