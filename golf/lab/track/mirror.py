"""`python -m golf.lab.track.mirror <folder> <settings as JSON>`: copy a run to W&B while it goes on.

It also mirrors the report of a sweep. `companion` starts it; the run has ended when standard input ends.

The client works in a forked child. A child that takes too long is killed with all processes that it started, because
wandb's own process would ask a dead server for ever. A second child records offline what did not arrive online.
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
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from golf.errors import GolfError
from golf.lab.track.companion import kill_descendants
from golf.lab.track.mirror_record import INCOMPLETE, OFFLINE, UPLOADED, MirrorRecord, is_sweep, warning
from golf.launch.process import STOP_SIGNALS
from golf.run.folder import RunFolder
from golf.settings.config import RulesConfig, from_dict
from golf.settings.jobs_config import TrackConfig
from golf.system import adopt_orphans

UPLOAD_SHARE = 0.6  # share of track.finish_seconds for the upload; the rest is for recording offline after a failure
NICENESS = 10  # lower priority than the training, for machines with few cores
LIVE_WATCH_SECONDS, END_WATCH_SECONDS = 1.0, 0.05  # delay in seeing a child's end, during the run and after it


@dataclass(frozen=True)
class Mirror:
    """The mirror of one folder."""

    folder: RunFolder
    track: TrackConfig
    rules: RulesConfig | None  # rules of a sweep's report; None for the rules of its runs
    training: int  # id of the process whose use of the machine may be sampled
    has_ended: Callable[[float], bool]  # wait up to some seconds and tell whether the run has ended
    warn: Callable[[str], None]

    def run(self) -> bool:
        """Mirror the folder. Return True if all of it arrived; a live run that did not arrive is recorded offline."""
        MirrorRecord(MirrorRecord.open(self.folder.path).id).write(self.folder.path)
        # Asked before the attempt, after which every run has ended.
        is_back_fill = self.has_ended(0.0)
        if not (failure := self.attempt(self.track, UPLOAD_SHARE * self.track.finish_seconds)):
            self._note(UPLOADED if self.track.mode == "online" else OFFLINE)
            return True
        text = warning(failure, self.folder.path)
        self._note(INCOMPLETE, text)
        self.warn(text)
        # A run that had ended before needs no offline copy: its folder can be mirrored again at any time.
        if self.track.mode == "online" and not is_back_fill:
            offline = replace(self.track, mode="offline")
            if not self.attempt(offline, (1 - UPLOAD_SHARE) * self.track.finish_seconds):
                self._note(OFFLINE, text)
        return False

    def attempt(self, track: TrackConfig, seconds: float) -> str:
        """Stream the run in a child that has `seconds` after the run's end. Return why it failed; empty on success."""
        reading, writing = os.pipe()
        if not (child := os.fork()):
            os.close(reading)
            self._stream_and_exit(track, writing)
        # With its own end for writing open, this process would never see the end of the pipe.
        os.close(writing)
        try:
            status = self._wait(child, seconds)
        finally:
            # wandb's own process may go on after the child that started it.
            kill_descendants(os.getpid())
        with os.fdopen(reading, encoding="utf-8") as reasons:
            reason = reasons.read()
        if status is None:
            return f"the upload took more than {seconds:g} s"
        return reason or ("" if status == 0 else f"the client failed, see {self.folder.track_log}")

    def _wait(self, child: int, seconds: float) -> int | None:
        """Return the exit status of the child, None if it was still at work when its time was over."""
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
        """Stream in the child and exit. An error's sentence goes through the pipe `writing`."""
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
            # An ordinary exit would run the parent's exit handlers a second time.
            os._exit(status)

    def _stream(self, track: TrackConfig) -> None:
        """Send the folder to W&B. Runs only in the child, because it imports wandb."""
        folder, record = self.folder.path, MirrorRecord.open(self.folder.path)
        if is_sweep(folder):
            from golf.lab.track.sweep_report import stream_report

            stream_report(folder, track, record, self.rules)
        else:
            from golf.lab.track.stream import stream

            stream(self.folder, track, record, self.has_ended, self.training)

    def _note(self, state: str, text: str = "") -> None:
        """Write the state of the mirror to track.json."""
        record = MirrorRecord.open(self.folder.path)
        record.state, record.warning = state, text
        # The run itself reports a full disk.
        with contextlib.suppress(GolfError):
            record.write(self.folder.path)


def main() -> int:
    """Mirror the folder of the command line. Return 1 if a part did not arrive."""
    # Signals that stop the training reach the mirror, too. It ends by itself after the training.
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # Every process that is started from here on inherits this priority.
    os.nice(NICENESS)
    adopt_orphans()
    folder = RunFolder(Path(sys.argv[1]))
    # Copied before standard error goes to the log below.
    terminal = os.fdopen(os.dup(2), "w", encoding="utf-8")
    # The client and its process write a lot: it goes to track.log, and only `warn` writes to the terminal.
    with folder.track_log.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)

    def warn(text: str) -> None:
        # The training may have drawn its progress bar on the line.
        clear = "\r\x1b[K" if terminal.isatty() else ""
        print(f"{clear}warning: {text}", file=terminal, flush=True)

    def has_ended(seconds: float) -> bool:
        return bool(select.select([sys.stdin], [], [], seconds)[0])

    settings = json.loads(sys.argv[2])
    track = from_dict(TrackConfig, settings["track"])
    rules = from_dict(RulesConfig, settings["rules"]) if settings["rules"] else None
    # The client leaves sockets and copies of media in the temporary folder, so it gets one of its own. The run folder
    # does not serve: it may be on a file system without sockets.
    with tempfile.TemporaryDirectory(prefix="golf-track-") as path:
        os.environ["TMPDIR"] = tempfile.tempdir = path
        return 0 if Mirror(folder, track, rules, os.getppid(), has_ended, warn).run() else 1


if __name__ == "__main__":
    sys.exit(main())
