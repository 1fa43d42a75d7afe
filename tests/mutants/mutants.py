"""The planted bugs by name. README.md lists them with what kills each."""

from __future__ import annotations

from tests.mutants.flow_mutants import FLOWING
from tests.mutants.lane_mutants import LANED
from tests.mutants.plain_mutants import PLAIN
from tests.mutants.race_mutants import RACING
from tests.mutants.tick_mutants import TICKING

MUTANTS = {mutant.name: mutant for mutant in (*PLAIN, *RACING, *TICKING, *FLOWING, *LANED)}
