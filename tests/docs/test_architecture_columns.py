"""docs/architecture.md names every column that a batch is packed with, and none that is not there."""

import re
from dataclasses import fields
from pathlib import Path

import made
import torch

from gimbal.dataflow.packing import pack
from gimbal.records import TrainBatch

TEXT = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()


def test_the_table_of_columns_is_the_record():
    table = TEXT[TEXT.index("| column | shape |") :]
    rows = [line.split("|") for line in table.split("\n\n")[0].splitlines()[2:]]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row[1])}
    known = {item.name for item in fields(TrainBatch)}
    assert named <= known, named - known
    batch = pack([made.group(made.TASK, made.rollout(part_S=torch.zeros(1).long(), turn_S=torch.zeros(1).long()))])
    packed = {
        name for name in known if getattr(batch, name) not in (None, {}, ()) and name not in ("decisions", "live")
    }
    by_pack = {name for row in rows if "`pack`" in row[3] for name in re.findall(r"`(\w+)`", row[1])}
    assert by_pack == packed
