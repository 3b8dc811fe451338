"""How often SCRUB would mark what is no secret, in conversations with nothing to hide; and what it costs.

`.venv/bin/python benchmarks/false_alarms.py --data FOLDER`: every message of every set in the folder (the
form is that of benchmarks/conversations.py). What is found is counted by kind and shown with what stands
around it, for somebody to judge; the time is the processor's, a message.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, the root is not on the path

from app.dialogues.scrubbing import find_personal
from benchmarks.conversations import find_sets, read_conversations

_AROUND = 15
_ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--show", type=int, default=20, help="findings to show of each set")
    options = parser.parse_args()
    print(f"{'set':24} {'messages':>9} {'characters':>11} {'marked':>7}  {'us a message':>12}  kinds")
    for folder in find_sets(options.data):
        texts = [
            str(dialogue["content"])
            for conversation in read_conversations(folder)
            for dialogue in conversation.dialogues
        ]
        begun_s = time.process_time()
        for _ in range(_ROUNDS):
            found = [find_personal(text) for text in texts]
        spent_us = (time.process_time() - begun_s) / _ROUNDS / len(texts) * 1e6
        kinds = Counter(one.kind for findings in found for one in findings)
        marked = sum(map(bool, found))
        characters = sum(map(len, texts))
        print(f"{folder.name:24} {len(texts):9} {characters:11} {marked:7}  {spent_us:12.1f}  {dict(kinds)}")
        shown = 0
        for text, findings in zip(texts, found, strict=True):
            for one in findings[: max(0, options.show - shown)]:
                shown += 1
                print(f"    {one.kind}: {text[max(0, one.start - _AROUND) : one.end + _AROUND]!r}")


if __name__ == "__main__":
    main()
