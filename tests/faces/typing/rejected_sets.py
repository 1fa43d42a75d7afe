"""Sets, apps and functions that do not go together: exactly the lines that end in `# no`."""

from __future__ import annotations

from towline import Tasks, Towline

mail = Tasks()
app = Towline("sqlite:///app.db")


@mail.task
def send(to: str) -> int:
    return len(to)


def plain(to: str) -> int:
    return len(to)


doubled = app.task(plain)
named = app.task(name="named")(plain)


def use() -> None:
    app.include("mail")  # no
    app.include([mail])  # no
    app.include(send)  # no
    app.include()  # no
    app.include(mail, 5)  # no
    mail.include(mail)  # no
    mail.enqueue_many([])  # no
    send.enqueue(1)  # no
    doubled.enqueue(1)  # no
    named.enqueue(1)  # no
    plain.enqueue("you")  # no
    app.task(5)  # no
    app.task(queue="mail")(5)  # no
    Towline(5)  # no
    Towline(ulr="sqlite:///app.db")  # no
    Towline("sqlite:///app.db", "prefix")  # no
