"""The tables of forgetting. The migrations make them; these classes are how Python sees them."""

from datetime import date, datetime

from sqlalchemy import BigInteger, Date, DateTime, Integer, SmallInteger, text
from sqlalchemy.orm import Mapped, mapped_column

from app.database.rows import Row


class RetrievalRow(Row):
    """When a message was last recalled; beside the wide row, which stays as it is."""

    __tablename__ = "retrievals"

    dialogue_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    retrieved_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class CorrectionJobRow(Row):
    """A short message of a user that nobody has yet read for what it corrects."""

    __tablename__ = "correction_jobs"

    dialogue_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    attempts: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    available_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=text("now()"))


class SweepRow(Row):
    """One day's sweep; who has claimed it does it, until `available_at`."""

    __tablename__ = "sweeps"

    day: Mapped[date] = mapped_column(Date, primary_key=True)
    started_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    available_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    finished_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    expired: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    unretrieved: Mapped[int] = mapped_column(Integer, server_default=text("0"))
