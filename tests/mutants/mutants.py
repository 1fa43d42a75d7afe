"""The planted bugs by name. README.md lists them with what kills each."""

from __future__ import annotations

from tests.mutants.plain_mutants import PLAIN
from tests.mutants.race_mutants import RACING

MUTANTS = {mutant.name: mutant for mutant in (*PLAIN, *RACING)}
