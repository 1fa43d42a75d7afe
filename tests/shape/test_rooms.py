"""Rooms: each has a floor, imports point inward, and no two rooms need each other.

A room of an inner floor can be read, tested and trusted without those further out; that holds only
as long as nothing it imports while running needs one. Imports under `if TYPE_CHECKING:` do not run
and are free.
"""

from pathlib import Path

from tests.shape.rooms import DOORS, FLOORS, drawing, floor_of, graph, imports, room_of
from tests.shape.source import ROOT, complain, modules

HERE = Path(__file__).parent.relative_to(ROOT) / "rooms.py"


def test_every_module_belongs_to_a_room() -> None:
    complain(
        [
            f"{module.at(1)}: towline.{module.name} is in no room; "
            f"list {room_of(module.name)!r} in FLOORS at the top of {HERE}"
            for module in modules()
            if floor_of(room_of(module.name)) is None
        ]
    )


def test_no_room_is_on_two_floors() -> None:
    listed = [room for rooms in FLOORS for room in rooms]
    complain([f"{name!r} is on two floors" for name in set(listed) if listed.count(name) > 1])


def test_imports_point_inward() -> None:
    complaints = []
    for each in imports():
        room = room_of(each.module.name)
        mine, theirs = floor_of(room), floor_of(each.room)
        if room in DOORS or mine is None or theirs is None or theirs <= mine:
            continue
        if each.room in DOORS:
            complaints.append(
                f"{each.module.at(each.line)}: imports from the package's front door; "
                "name the module that defines what it needs"
            )
        else:
            complaints.append(f"{each.module.at(each.line)}: {room} is further in than {each.room}")
    complain(complaints)


def test_no_two_rooms_need_each_other() -> None:
    needs = graph()

    def circle(room: str, path: tuple[str, ...]) -> tuple[str, ...] | None:
        if room in path:
            return (*path[path.index(room) :], room)
        for other in sorted(needs.get(room, ())):
            if other not in DOORS and (found := circle(other, (*path, room))):
                return found
        return None

    circles = {found for room in needs if room not in DOORS and (found := circle(room, ()))}
    complain([f"these rooms need each other: {' → '.join(found)}" for found in sorted(circles)])


def test_the_picture_of_the_house_is_true() -> None:
    """ARCHITECTURE.md shows what `make house` prints."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert drawing() in text, f"put this into ARCHITECTURE.md:\n{drawing()}"
