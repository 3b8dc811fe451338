"""Which model's vectors the record has, and which model it is being copied for.

Revision ID: 0006
Revises: 0005
Create Date: 2026-12-07
"""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE embedding_models ADD COLUMN live_since timestamptz, ADD COLUMN renewal_total integer"
    )


def downgrade() -> None:
    # A copy that is not finished is of no use to a version that does not know it.
    op.execute("DROP TRIGGER IF EXISTS dialogues_note_change ON dialogues")
    op.execute("DROP FUNCTION IF EXISTS note_dialogue_change()")
    op.execute("DROP TABLE IF EXISTS dialogues_next, dialogues_next_changes")
    op.execute("ALTER TABLE embedding_models DROP COLUMN live_since, DROP COLUMN renewal_total")
