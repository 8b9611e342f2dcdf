"""`python -m golf.jobs.track.mirror <folder> <settings as JSON>`: follow a run into W&B, whatever W&B does.

Or mirror what is no run of ours: the report of a sweep, an imported submission.

Started by `companion`; the run is over when standard input ends. The client works in a forked child, which is killed if
it takes too long, with everything it started: wandb's own process otherwise goes on asking a dead server for ever. What
does not get through online is recorded offline by a second child.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from golf.errors import GolfError
from golf.jobs.track.companion import adopt_orphans, kill_descendants
from golf.jobs.track.record import (
    INCOMPLETE,
    OFFLINE,
    UPLOADED,
    Record,
    is_import,
    is_sweep,
    open_record,
    warning,
    write_record,
)
from golf.run.folder import RunFolder
from golf.settings.config import RulesConfig, TrackConfig, from_dict

UPLOAD_SHARE = 0.6  # of track.finish_seconds; the rest is for recording offline what did not get through
NICENESS = 10  # where cores are few, training goes first
LIVE_WATCH_SECONDS, END_WATCH_SECONDS = 1.0, 0.05  # how soon the end of a child is seen


@dataclass(frozen=True)
class Mirror:
    folder: RunFolder
    track: TrackConfig
    rules: RulesConfig | None
    training: int  # process whose use of the machine may be sampled
    has_ended: Callable[[float], bool]  # waits up to some seconds for the end of the run
    warn: Callable[[str], None]

    def run(self) -> bool:
        """Whether the run got where it should; if not, it was recorded offline unless it was over from the start."""
        write_record(self.folder.path, Record(open_record(self.folder.path).id))
        is_back_fill = self.has_ended(0.0)
        failure = self.attempt(self.track, UPLOAD_SHARE * self.track.finish_seconds)
        if not failure:
            self._note(UPLOADED if self.track.mode == "online" else OFFLINE)
            return True
        text = warning(failure, self.folder.path)
        self._note(INCOMPLETE, text)
        self.warn(text)
        if self.track.mode == "online" and not is_back_fill:
            offline = replace(self.track, mode="offline")
            if not self.attempt(offline, (1 - UPLOAD_SHARE) * self.track.finish_seconds):
                self._note(OFFLINE, text)
        return False

    def attempt(self, track: TrackConfig, seconds: float) -> str:
        """Stream the run in a child that has `seconds` after the run's end. Why it failed; empty if it did not."""
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            self._stream_and_exit(track, writing)
        os.close(writing)
        try:
            status = self._wait(child, seconds)
        finally:
            kill_descendants(os.getpid())
        with os.fdopen(reading) as reasons:
            reason = reasons.read()
        if status is None:
            return f"the upload took more than {seconds:g} s"
        return reason or ("" if status == 0 else f"the client failed, see {self.folder.track_log}")

    def _wait(self, child: int, seconds: float) -> int | None:
        """Exit status of the child, None if it was still at work when its time was up."""
        deadline: float | None = None
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                return status
            if deadline is None and self.has_ended(LIVE_WATCH_SECONDS):
                deadline = time.monotonic() + seconds
            elif deadline is not None:
                if time.monotonic() > deadline:
                    return None
                time.sleep(END_WATCH_SECONDS)

    def _stream_and_exit(self, track: TrackConfig, writing: int) -> None:
        """In the child: never returns."""
        status = 1
        try:
            self._stream(track)
            status = 0
        except GolfError as error:
            os.write(writing, str(error).encode()[:1000])
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)

    def _stream(self, track: TrackConfig) -> None:
        """Imports wandb, so only in the child."""
        folder, record = self.folder.path, open_record(self.folder.path)
        if is_sweep(folder):
            from golf.jobs.track.sweep_report import stream_report

            stream_report(folder, track, record, self.rules)
        elif is_import(folder):
            from golf.jobs.track.imported import stream_import

            stream_import(folder, track, record)
        else:
            from golf.jobs.track.stream import stream

            stream(self.folder, track, record, self.has_ended, self.training)

    def _note(self, state: str, text: str = "") -> None:
        record = open_record(self.folder.path)
        record.state, record.warning = state, text
        with contextlib.suppress(GolfError):  # a full disk, which the run itself reports
            write_record(self.folder.path, record)


def main() -> int:
    """Status 1 if the run did not get where it should."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):  # they mean the training, whose end we wait for
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    adopt_orphans()
    folder = RunFolder(Path(sys.argv[1]))
    terminal = os.fdopen(os.dup(2), "w")
    with folder.track_log.open("ab") as log:  # the client and its process write a lot
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)

    def warn(text: str) -> None:
        clear = "\r\x1b[K" if terminal.isatty() else ""  # the bar that the training draws
        print(f"{clear}warning: {text}", file=terminal, flush=True)

    def has_ended(seconds: float) -> bool:
        return bool(select.select([sys.stdin], [], [], seconds)[0])

    settings = json.loads(sys.argv[2])
    track = from_dict(TrackConfig, settings["track"])
    rules = from_dict(RulesConfig, settings["rules"]) if settings["rules"] else None
    with own_temporary_folder():
        return 0 if Mirror(folder, track, rules, os.getppid(), has_ended, warn).run() else 1


@contextlib.contextmanager
def own_temporary_folder() -> Iterator[None]:
    """What the client and its process leave in the system's folder (sockets, copies of media) goes with this process.

    Not the run folder: that may be on a file system that has no sockets.
    """
    with tempfile.TemporaryDirectory(prefix="golf-track-") as path:
        os.environ["TMPDIR"] = tempfile.tempdir = path
        try:
            yield
        finally:
            tempfile.tempdir = None


if __name__ == "__main__":
    sys.exit(main())
